"""Starts the processes that scenes run in, and compares what they say."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

import pytest
from scene import GRANULE, NATIVE, PLUGGABLE, POLICY

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# What decides an allocator's settings: a scene has its own, and nobody else's.
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "GRANULE_TORCH", "GRANULE_CONF")


class Rig:
    """The GPU-less rig, or a real GPU where GRANULE_E2E_REAL is set."""

    def __init__(self, long=False, timeout=240):
        # As it is now: a test that changes it means its own processes.
        self.environ = dict(os.environ)
        self.real = bool(self.environ.get("GRANULE_E2E_REAL"))
        self.folder = ROOT / "tests/nogpu-torch"
        self.long = long
        self.timeout = timeout * (10 if long else 1)
        # Processes run before their tests ask for them, in the tests' order, as many at once as there are processors.
        self.pool = ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0))))
        self.begun, self.running, self.closed = {}, set(), False
        self.lock = threading.Lock()
        self.build = tempfile.TemporaryDirectory(prefix="granule-e2e-build-")
        self.scenes = {}
        self.template = None

    def add(self, path, run, name, scene):
        """Says that a scene is to run, so that those which share a process are known when it starts."""
        self.scenes.setdefault((path, run, scene.alone and name), []).append((name, scene))

    def check(self, test, run):
        """Fails unless the scene came to its end with each allocator and said the same with each."""
        scene, path = test.scene, sys.modules[test.__module__].__file__
        outcomes = self.outcomes(path, run, test.__name__, scene)
        ran = [allocator for allocator in scene.allocators if allocator in outcomes]
        assert ran, "the scene ran with no allocator"
        for allocator in ran:
            failure = outcomes[allocator].failure(test.__name__)
            if failure:
                pytest.fail(f"with {allocator}:\n{failure}", pytrace=False)
        for allocator, compare in ((GRANULE, differences), (POLICY, scene.judge)):
            if NATIVE in ran and allocator in ran:
                returned = [outcomes[name].scenes[test.__name__]["returned"] for name in (NATIVE, allocator)]
                found = list(compare(*returned))
                if found:
                    more = f"\n... and {len(found) - 30} more" if len(found) > 30 else ""
                    pytest.fail(f"native | {allocator}:\n" + "\n".join(found[:30]) + more, pytrace=False)

    def outcomes(self, path, run, name, scene):
        """What the processes said that run the scene's group: one for each allocator."""
        wanted = (path, run, scene.alone and name)
        self.begin(wanted)
        return {allocator: process.result() for allocator, process in self.begun[wanted].items()}

    def begin_all(self):
        """Has all groups run in their turn, beside the tests that are no scenes."""
        # A real GPU has its memory once: there a group runs when its test asks for it.
        for group in () if self.real else self.scenes:
            self.begin(group)

    def begin(self, group):
        """Has the processes of a group run in their turn, and keeps what they will say, by allocator."""
        if group in self.begun:
            return
        path, run, _ = group
        processes = {}
        for allocator in (NATIVE, PLUGGABLE, GRANULE, POLICY):
            scenes = [(name, scene) for name, scene in self.scenes[group] if allocator in scene.allocators]
            if scenes and allocator not in run.without:
                processes[allocator] = self.pool.submit(self.outcome, path, allocator, run, scenes)
        self.begun[group] = processes

    def outcome(self, *process):
        with self.lock:
            if self.closed:
                raise CancelledError
            started = self.start(*process)
            self.running.add(started)
        try:
            return started.wait(self.timeout)
        finally:
            self.running.discard(started)

    def close(self):
        """Stops what runs, and begins nothing more."""
        with self.lock:
            self.closed = True
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in list(self.running):
            process.stop()
        self.pool.shutdown()

    def start(self, path, allocator, run, scenes):
        modules = [str(HERE), str(self.folder), self.environ.get("PYTHONPATH", "")]
        env = dict(self.environ, PYTHONPATH=os.pathsep.join(filter(None, modules)))
        for name in SETTINGS:
            env.pop(name, None)
        env.update(run.env)
        if allocator == POLICY:
            env["GRANULE_CONF"] = POLICY
        if run.settings:
            env["PYTORCH_CUDA_ALLOC_CONF"] = run.settings
        env["FAKE_GPU_MEM_GB"], env["FAKE_GPU_COUNT"] = str(run.gib), str(run.devices)
        env["GRANULE_E2E_BUILD"] = self.build.name
        env["GRANULE_E2E_LONG"] = str(int(self.long))
        env["FAKE_GPU_BYTES"] = "1" if run.contents else "0"
        for _, scene in scenes:
            env.update(scene.env)
        env.setdefault("TRANSFORMERS_VERBOSITY", "error")
        env.setdefault("HF_HUB_OFFLINE", "1")
        names = [name for name, _ in scenes]
        # What a variable changes while torch is imported needs a process where it is set from the start.
        alone = self.real or run.env or any(scene.env for _, scene in scenes)
        start = self.new if alone else self.copy
        return Process(lambda words, log: start(words, env, log), path, allocator, names)

    def new(self, words, env, log):
        """A program with these words, in a new process."""
        return subprocess.Popen(
            self.command() + words, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )

    def copy(self, words, env, log):
        """A program with these words, in a copy of the process that has torch imported."""
        if not self.template:
            self.template = Template(self.command(), {**self.environ, "PYTHONPATH": env.get("PYTHONPATH", "")})
        return self.template.copy(words, env, log)

    def command(self):
        if self.real:
            return [sys.executable]
        return [str(ROOT / "crates/tools/granule-estimate/rig/fakegpu-run"), "--", sys.executable]


class Template:
    """A process that has imported torch and runs scenes in copies of itself: the import takes longer than most scenes."""

    def __init__(self, command, environ):
        self.environ = {name: value for name, value in environ.items() if name not in SETTINGS}
        self.environ["FAKE_GPU_BYTES"] = "0"
        words = [*command, str(HERE / "template.py")]
        self.process = subprocess.Popen(
            words, env=self.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def copy(self, words, env, log):
        """A copy that runs a program with these words after its name."""
        status = Path(log.name).with_name("status")
        # Not what the template has from its start, such as the rig's libraries.
        changed = {name: value for name, value in env.items() if self.environ.get(name) != value}
        job = {"words": words, "env": changed, "log": log.name, "status": str(status)}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        assert line, "the process that scenes are copied from has ended"
        return Copy(int(line), status)


class Copy:
    """A copy of the template, as `subprocess.Popen` would show it."""

    def __init__(self, pid, status):
        self.pid, self.status = pid, status

    def wait(self, timeout):
        until = time.monotonic() + timeout
        while not self.status.exists():
            if time.monotonic() > until or not self.is_kept():
                raise subprocess.TimeoutExpired("a copy", timeout)
            time.sleep(0.02)
        return int(self.status.read_text(encoding="ascii"))

    def is_kept(self):
        """Whether the process is there that writes the status, or has written it."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return self.status.exists()
        return True


class Process:
    """A child that runs scenes."""

    def __init__(self, start, path, allocator, names):
        self.folder = tempfile.TemporaryDirectory(prefix="granule-e2e-")
        self.out = Path(self.folder.name, "out.jsonl")
        self.log = open(Path(self.folder.name, "log"), "w+", encoding="utf-8", errors="replace")
        self.child = start([str(HERE / "child.py"), path, allocator, str(self.out), *names], self.log)

    def wait(self, timeout):
        try:
            status = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.stop()
            status = f"none in {timeout} s, and was stopped"
        self.log.seek(0)
        log = self.log.read()
        self.log.close()
        lines = self.out.read_text(encoding="utf-8").splitlines() if self.out.exists() else []
        self.folder.cleanup()
        return Outcome([json.loads(line) for line in lines], status, log)

    def stop(self):
        """Ends it and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, 9)


class Outcome:
    """What a child said."""

    def __init__(self, lines, status, log):
        self.scenes = {line["ended"]: line for line in lines if "ended" in line}
        self.began = [line["began"] for line in lines if "began" in line]
        self.finished = any("finished" in line for line in lines)
        self.status, self.log = status, log

    def failure(self, name):
        """Why the scene counts as failed, or nothing."""
        log = f"--- output ---\n{self.log[-4000:]}"
        said = self.scenes.get(name)
        if said and "failed" in said:
            return f"{said['failed']}\n{log}"
        if not said:
            where = f"while {self.began[-1]} ran" if self.began else "before the first scene"
            return f"the process ended {where}; its exit status was {self.status}\n{log}"
        if not self.finished or self.status != 0:
            last = name == self.began[-1]
            if last:
                return f"the process did not end well after this scene; its exit status was {self.status}\n{log}"
        return None


def differences(native, granule, where=""):
    """The places where two values differ, a line each. What native has lost of its frames may be there."""
    if where.endswith(".frames_unless_lost") and native == []:
        return
    if isinstance(native, dict) and isinstance(granule, dict):
        for key in list(native) + [key for key in granule if key not in native]:
            yield from differences(native.get(key, "(none)"), granule.get(key, "(none)"), f"{where}.{key}")
    elif isinstance(native, list) and isinstance(granule, list):
        for at in range(max(len(native), len(granule))):
            left = native[at] if at < len(native) else "(none)"
            right = granule[at] if at < len(granule) else "(none)"
            yield from differences(left, right, f"{where}[{at}]")
    elif native != granule or type(native) is not type(granule):
        yield f"  {where or 'value'}: {native!r} | {granule!r}"
