"""How a test file says what it runs, and on which allocators.

Each test file is a program as well. A function with `@scene` is one test: its body runs in another Python
process, on the GPU-less rig, once with PyTorch's own allocator and once with Granule's, and what it returns must be
equal. So a scene returns all that a user could see (statistics, texts, snapshots), with nothing that differs from
one run to the next, such as addresses and times. What is true of one allocator alone, a scene asserts itself.
"""
from dataclasses import dataclass, field
from importlib import metadata

NATIVE, PLUGGABLE, GRANULE = "native", "pluggable", "granule"
# Granule under its own policy, which places memory otherwise than PyTorch: what it returns is judged, see `Scene.judge`.
POLICY = "policy:granule"


def release():
    """The release of PyTorch that is installed, such as (2, 15)."""
    return tuple(int(part) for part in metadata.version("torch").split(".")[:2])


@dataclass(frozen=True)
class Run:
    """One setting of the rig under which the scenes of a file run, in one process for each allocator."""

    name: str
    # The text of PYTORCH_CUDA_ALLOC_CONF.
    settings: str = ""
    # What each device holds, and how many there are.
    gib: float = 4
    devices: int = 1
    # Whether device memory has contents. Without them a device of any size costs nothing.
    contents: bool = False
    env: tuple[tuple[str, str], ...] = ()
    # Allocators that are left out under this setting.
    without: tuple[str, ...] = ()


@dataclass
class Scene:
    """What `@scene` says of a function."""

    body: object
    allocators: tuple[str, ...] = (NATIVE, GRANULE)
    # In a process of its own: it needs a process where nothing has happened, or leaves one that is of no use.
    alone: bool = False
    # Whether the allocator is put in place before the body; a scene about doing so says no.
    install: bool = True
    # Runs, by name, that only --long has.
    long: tuple[str, ...] = ()
    # Also on a machine with a real GPU, where memory has contents and copies give what is there.
    real: bool = False
    runs: tuple[Run, ...] | None = None
    # Given what native returned and what was returned under Granule's own policy: what is wrong with that, a line each.
    judge: object = None
    # The release of PyTorch that brought what it is about; on an older one it is left out, and named as absent.
    since: tuple[int, int] = (0, 0)
    env: dict[str, str] = field(default_factory=dict)


def scene(body=None, **options):
    """Makes a function a test whose body runs on the rig."""
    if body is None:
        return lambda body: scene(body, **options)

    def test(rig, run):
        rig.check(test, run)

    test.__name__, test.__qualname__ = body.__name__, body.__name__
    test.__module__, test.__doc__ = body.__module__, body.__doc__
    test.scene = Scene(body, **options)
    return test


DEFAULT = Run("default")
EXPANDABLE = Run("expandable", settings="expandable_segments:True")
