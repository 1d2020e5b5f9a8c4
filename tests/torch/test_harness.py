"""The harness itself: what differs, dies, hangs or breaks makes a test fail."""
import os
import signal
import subprocess
import sys

import pytest
from rig import Outcome, Rig, differences
from scene import DEFAULT

PROGRAM = '''
import os, torch
from allocators import current
from scene import GRANULE, NATIVE, POLICY, scene

@scene
def test_same(): return [1, {"a": 2}]

@scene
def test_other(): return [1, {"a": current()}]

@scene
def test_raises(): assert current() == "native", "broken on purpose"

@scene
def test_last(): return torch.cuda.is_initialized()

@scene(alone=True)
def test_dies(): os._exit(0)

def longer(native, policy): return [f"{native} | {policy}"] * (len(policy) > len(native))

@scene(allocators=(NATIVE, POLICY), judge=longer)
def test_judged(): return current()
'''


def test_differences_are_found_at_any_depth():
    native = {"a": [1, {"b": 2}], "c": 1, "only": 0}
    assert list(differences(native, {"a": [1, {"b": 2}], "c": 1, "only": 0})) == []
    granule = {"a": [1, {"b": 3}, 4], "c": 1.0, "more": 5}
    found = list(differences(native, granule))
    assert found == [
        "  .a[1].b: 2 | 3", "  .a[2]: '(none)' | 4", "  .c: 1 | 1.0", "  .only: 0 | '(none)'", "  .more: '(none)' | 5"
    ]


def test_a_process_that_ends_badly_fails_its_last_scene():
    lines = [{"began": "a"}, {"ended": "a", "returned": 1}, {"began": "b"}]
    died = Outcome(lines, -11, "")
    assert died.failure("a") is None and "while b ran" in died.failure("b") and "-11" in died.failure("c")
    assert "before the first scene" in Outcome([], 1, "").failure("a")
    whole = [*lines, {"ended": "b", "returned": 1}, {"finished": True}]
    assert Outcome(whole, 0, "").failure("b") is None
    assert "did not end well" in Outcome(whole, -6, "").failure("b")
    assert "Trace" in Outcome([{"began": "a"}, {"ended": "a", "failed": "Trace"}], 0, "").failure("a")


def test_a_copy_is_alike_and_is_stopped_where_it_hangs(tmp_path):
    program = tmp_path / "program.py"
    rig = Rig(timeout=20)
    for text, said in (
        ("import sys, os; print(sys.argv[1:], os.environ['A'], os.environ.get('GRANULE_CONF'))", (0, "['x', 'y'] b None\n")),
        ("import sys, torch; torch.cuda.init(); sys.exit(3)", (3, "")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (-9, "")),
        ("import atexit; atexit.register(print, 'its end')", (0, "its end\n")),
    ):
        program.write_text(text)
        with open(tmp_path / "log", "w+") as log:
            copy = rig.copy([str(program), "x", "y"], {**os.environ, "A": "b"}, log)
            assert (copy.wait(60), log.read()) == said
        copy.status.unlink()
    program.write_text("import time; time.sleep(600)")
    with open(tmp_path / "log", "w+") as log:
        copy = rig.copy([str(program)], dict(os.environ), log)
    with pytest.raises(subprocess.TimeoutExpired):
        copy.wait(0.5)
    os.killpg(copy.pid, signal.SIGKILL)


def test_scenes_that_differ_or_die_fail(tmp_path, monkeypatch):
    file = tmp_path / "test_probe.py"
    file.write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    import test_probe

    rig = Rig()
    scenes = {name: test for name, test in vars(test_probe).items() if name.startswith("test_")}
    for name, test in scenes.items():
        rig.add(str(file), DEFAULT, name, test.scene)
    rig.check(scenes["test_same"], DEFAULT)
    rig.check(scenes["test_last"], DEFAULT)
    for name, said in (
        ("test_judged", "native | policy:granule"),
        ("test_other", ".a: 'native' | 'granule'"), ("test_raises", "broken on purpose"), ("test_dies", "while test_dies")
    ):
        with pytest.raises(pytest.fail.Exception, match=said.replace(".", r"\.").replace("|", r"\|")):
            rig.check(scenes[name], DEFAULT)
    sys.modules.pop("test_probe")
    assert len(scenes) == 6
