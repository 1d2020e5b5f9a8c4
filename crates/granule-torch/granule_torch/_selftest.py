"""Tries a PyTorch release that nobody has tested: what Granule answers there, beside what PyTorch's own allocator answers.

Each runs the same steps under default settings in a process of its own, so that the program itself touches no device. The answer is
kept for this build, so that no other process has to ask again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Iterator, NamedTuple

from . import _library, _own
from ._errors import GranuleError

# Set in the processes that try a release.
VARIABLE = "GRANULE_TORCH_SELFTEST"

_MIB = 1 << 20
# What decides an allocator's settings. The steps are tried under those of nobody.
_SETTINGS = (
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "GRANULE_CONF",
    "GRANULE_RECORD",
)
_SECONDS = 300
# What the answers follow: other code may print in the same process.
_MARK = "granule_torch self-test: "
# Characters of a kept answer, at most.
_LONGEST = 1 << 16


class NotTried(GranuleError):
    """The self-test could not be run to its end, which says nothing about the release."""


def _taken(size: int) -> Any:
    import torch

    return torch.empty(size, dtype=torch.uint8, device="cuda")


def _figures() -> dict[str, int]:
    import torch

    return {name: int(value) for name, value in torch.cuda.memory_stats().items()}


def allocate_and_free() -> Any:
    """What is held after each of some requests, small and large, and after each of their frees."""
    import torch

    held, seen = [], []
    for size in (1, 512, 513, _MIB, 3 * _MIB, 11 * _MIB, 30 * _MIB):
        held.append(_taken(size))
        seen.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    while held:
        held.pop(len(held) // 2)
        seen.append((torch.cuda.memory_allocated(), torch.cuda.memory_reserved()))
    torch.cuda.empty_cache()
    return [*seen, (torch.cuda.memory_allocated(), torch.cuda.memory_reserved())]


def statistics() -> Any:
    """Every figure by its name, before and after peaks are reset."""
    import torch

    kept = _taken(5 * _MIB)
    before = _figures()
    del kept
    torch.cuda.reset_peak_memory_stats()
    return [before, _figures()]


def snapshot() -> Any:
    """The form of a snapshot, its segments, and what its history tells."""
    import torch

    torch.cuda.memory._record_memory_history(context=None)
    kept = [_taken(size) for size in (1000, 3 * _MIB)]
    kept.pop(0)
    taken = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    # Drivers give addresses in an order of their own.
    segments = sorted((_segment(segment) for segment in taken["segments"]), key=json.dumps)
    return [sorted(taken), segments, _history(taken["device_traces"])]


def _segment(segment: dict[str, Any]) -> Any:
    blocks = [[sorted(block), block["state"], block["size"]] for block in segment["blocks"]]
    return [sorted(segment), segment["total_size"], segment["allocated_size"], segment["segment_type"], blocks]


def _history(traces: list[list[dict[str, Any]]]) -> Any:
    return [[sorted(entry), entry["action"], entry["size"]] for trace in traces for entry in trace]


def record_stream() -> Any:
    """Memory that another stream was said to use is free for others once that stream has been waited for."""
    import torch

    other = torch.cuda.Stream()
    held = _taken(3 * _MIB)
    with torch.cuda.stream(other):
        held.fill_(1)
    held.record_stream(other)
    del held
    torch.cuda.synchronize()
    again = _taken(3 * _MIB)
    return [again.numel(), _figures()]


def graph() -> Any:
    """A graph is captured into a pool of its own, replayed, and given up."""
    import torch

    given = torch.zeros(1000, device="cuda")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        made = given + 1
    captured.replay()
    torch.cuda.synchronize()
    pools = [tuple(segment["segment_pool_id"]) != (0, 0) for segment in torch.cuda.memory_snapshot()]
    seen = [made.cpu().tolist()[:3], sorted(pools), _figures()]
    del made
    captured.reset()
    torch.cuda.empty_cache()
    return [*seen, _figures()]


def pinned_memory() -> Any:
    """Pinned host memory is copied from, given back and used again, and the cache is emptied."""
    import torch

    seen = []
    for size in (1000, 3 * _MIB, 3 * _MIB):
        held = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        copied = held.to("cuda", non_blocking=True)
        torch.cuda.synchronize()
        seen.append([held.is_pinned(), copied.numel(), _pinned_figures()])
        del held
    torch._C._host_emptyCache()
    return [*seen, _pinned_figures()]


def _pinned_figures() -> dict[str, int]:
    import torch

    return {name: int(value) for name, value in torch.cuda.host_memory_stats().items() if "time" not in name}


PARTS: tuple[Callable[[], Any], ...] = (allocate_and_free, statistics, snapshot, record_stream, graph, pinned_memory)


class Answer(NamedTuple):
    """What the self-test found."""

    differs: str
    """What differs, in words; empty where nothing does."""
    is_new: bool
    """Whether it was found just now, not before."""


def answer(backend: str, file: Path) -> Answer:
    """The answer that the file has, else what comparing gives, which is kept there.

    Raises:
        NotTried: a part could not be run; the text says why. That is not kept.
    """
    with _alone(file.with_suffix(".lock")):
        found = kept(file)
        if found is not None:
            return Answer(found, is_new=False)
        print("granule_torch: trying a PyTorch release that it was not tested with; this is done once.", file=sys.stderr, flush=True)
        differs = _compare(_observed("native", backend), _observed("granule", backend))
        # Where that cannot be written, the next process tries again.
        with contextlib.suppress(OSError):
            _keep(file, differs)
        return Answer(differs, is_new=True)


def kept(file: Path) -> str | None:
    """What differs, as the file has it. Nothing where it is damaged, speaks of another build, or somebody else could have written it."""
    try:
        # Nor a link to a file elsewhere, nor a pipe that waits for its writer.
        with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), encoding="utf-8") as opened:
            status = os.fstat(opened.fileno())
            if not stat.S_ISREG(status.st_mode) or _own.is_anybodys(status):
                return None
            found = json.loads(opened.read(_LONGEST))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("build") != _build_of(file):
        return None
    differs = found.get("differs")
    return differs if isinstance(differs, str) else None


def _keep(file: Path, differs: str) -> None:
    # Whole wherever it is seen, and for the user alone to write, whatever the umask.
    with tempfile.TemporaryDirectory(dir=_own.folder(file.parent)) as aside:
        made = Path(aside, file.name)
        made.write_text(json.dumps({"build": _build_of(file), "differs": differs}), encoding="utf-8")
        made.chmod(0o600)
        made.replace(file)


def _build_of(file: Path) -> str:
    """The build and the release that an answer is about: the last two parts of its path."""
    return "/".join(file.parts[-2:])


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Many processes may begin at once, and one tries for all. Where no file can be made, each tries for itself."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            _own.folder(path.parent)
            fcntl.flock(held.enter_context(path.open("a")), fcntl.LOCK_EX)
        yield


def _compare(native: Any, granule: Any) -> str:
    """What differs first, in words."""
    for part in PARTS:
        found = list(itertools.islice(differences(native[part.__name__], granule[part.__name__]), 3))
        if found:
            name = part.__name__.replace("_", " ")
            return f"in the self-test's part '{name}' PyTorch's own allocator and Granule differ: {'; '.join(found)}"
    return ""


def _observed(allocator: str, backend: str) -> Any:
    """What the steps answer in a process of their own, with that allocator."""
    env = {name: value for name, value in os.environ.items() if name not in _SETTINGS and name != "GRANULE_TORCH"}
    # A plug-in of the user's may enable Granule in every process, and must not do so there.
    env[VARIABLE] = "1"
    # The same packages as here.
    program = f"import sys; sys.path[:] = {sys.path!r}; from granule_torch import _selftest; _selftest.main()"
    words = [sys.executable or "python3", "-c", program, allocator, backend]
    try:
        done = subprocess.run(words, env=env, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotTried(f"the self-test could not be run with the allocator {allocator}: {error}") from error
    answers = [line for line in done.stdout.splitlines() if line.startswith(_MARK)]
    if done.returncode != 0 or not answers:
        said = " ".join(done.stderr.strip().splitlines()[-1:]) or f"exit status {done.returncode}"
        raise NotTried(f"the self-test ended early with the allocator {allocator}: {said}")
    return json.loads(answers[-1].removeprefix(_MARK))


def differences(native: Any, granule: Any, where: str = "") -> Iterator[str]:
    """The places where two values differ."""
    if isinstance(native, dict) and isinstance(granule, dict):
        for key in sorted({*native, *granule}):
            yield from differences(native.get(key, "absent"), granule.get(key, "absent"), f"{where} {key}")
    elif isinstance(native, list) and isinstance(granule, list):
        for at, pair in enumerate(itertools.zip_longest(native, granule, fillvalue="absent")):
            yield from differences(*pair, f"{where} {at}")
    elif native != granule:
        yield f"{where.strip()}: {native!r} and {granule!r}"


def main() -> None:
    """Runs the steps with the allocator that the first word names, and prints what they answer."""
    allocator, backend = sys.argv[1:]
    if allocator == "granule":
        from . import _enable

        _enable.install(backend, None)
    answers = {part.__name__: part() for part in PARTS}
    _served_by(allocator)
    print(f"\n{_MARK}{json.dumps(answers)}", flush=True)


def _served_by(allocator: str) -> None:
    """Equal answers prove something only where the allocator was asked.

    Raises:
        GranuleError: it was not.
    """
    import torch

    from . import _enable

    if allocator == "native":
        named = torch.cuda.get_allocator_backend()
        if named != "native" or _enable.is_enabled():
            raise GranuleError(f"the process that was to run PyTorch's own allocator ran {named}")
        return
    stats = _library.DeviceStats.empty()
    _library.check(_library.load().granule_stats(_enable.engine(), torch.cuda.current_device(), ctypes.byref(stats)))
    if not _enable.is_enabled() or stats.allocation.all.allocated == 0:
        raise GranuleError("this release asks another allocator for memory than the one that was put in place")
