"""Makes pytest tests of scenes; see `scene.py`."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pytest  # noqa: E402
from rig import Rig  # noqa: E402
from scene import DEFAULT, release  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="all runs at their full length, not only the slice")
    parser.addoption("--native-only", action="store_true", help="leave Granule out: is the rig itself in order?")


def pytest_generate_tests(metafunc):
    scene = getattr(metafunc.function, "scene", None)
    if scene:
        runs = scene.runs or getattr(metafunc.module, "RUNS", (DEFAULT,))
        metafunc.parametrize("run", runs, ids=[run.name for run in runs])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leaves out what this kind of session does not run, and tells the rig what is left: last, behind what `-k` leaves out."""
    rig = config.stash[RIG]
    kept, left_out = [], []
    for item in items:
        scene = getattr(item.function, "scene", None)
        if scene and config.getoption("--native-only"):
            scene.allocators = tuple(name for name in scene.allocators if name == "native")
        brief = config.getoption("--long") or not scene or item.callspec.params["run"].name not in scene.long
        wanted = not scene or (scene.allocators and brief and (not rig.real or scene.real))
        (kept if wanted else left_out).append(item)
        absent = scene and scene.since > release()
        if absent:
            item.add_marker(pytest.mark.skip(reason=f"absent before torch {scene.since[0]}.{scene.since[1]}"))
        if scene and wanted and not absent:
            rig.add(item.module.__file__, item.callspec.params["run"], item.function.__name__, scene)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept


def pytest_collection_finish(session):
    if not session.config.option.collectonly:
        session.config.stash[RIG].begin_all()


RIG = pytest.StashKey()


def pytest_configure(config):
    rig = config.stash[RIG] = Rig(long=config.getoption("--long"))
    sys.path.insert(0, str(rig.folder))


@pytest.fixture
def rig(request):
    return request.config.stash[RIG]


def pytest_unconfigure(config):
    config.stash[RIG].close()
