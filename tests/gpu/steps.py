"""Steps of the kit: programs with a limit each and one budget for all. What they say is kept as it comes."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "KIT "
"""What a program's lines begin with that are results; each goes on with a JSON object."""
OK, FAILED, LACKS, SKIPPED = "ok", "failed", "lacks", "skipped"


@dataclass
class Step:
    """A program and its limit in seconds. With less than `need` seconds left it is not begun."""

    name: str
    words: list
    limit: float
    into: str = "results.jsonl"
    need: float = 5
    env: dict = field(default_factory=dict)
    # What it works with, of what a machine may lack.
    wants: tuple = ()
    # Whether the run ends well without it, where the machine lacks something.
    optional: bool = False
    # Starts up beside others, and waits for its turn on the device.
    turns: bool = False
    # Asks no driver: it needs no rig.
    plain: bool = False
    mark: str = MARK
    # How much of what else it printed is kept; at least a character.
    tail: int = 1500


@dataclass
class Ended:
    """How a step ended: `why` says what went wrong, or what there was too little of."""

    step: Step
    outcome: str
    why: str = ""
    seconds: float = 0
    results: list = field(default_factory=list)
    # What else it printed, and what it complained of.
    text: str = ""
    complaints: str = ""


class Kit:
    """A run: where results go, how much time is left, what this machine lacks."""

    def __init__(self, out, seconds, slow=1, prefix=()):
        self.out, self.slow, self.prefix, self.seconds = Path(out), slow, list(prefix), seconds
        self.begun = time.monotonic()
        self.work = Path(tempfile.mkdtemp(prefix="granule-kit-"))
        # What is lacked: how a step ends that wants it, and where the reason is.
        self.env, self.lacks, self.ended = {}, {}, []
        self.stopped = ""
        self._guard = threading.Lock()
        self.out.mkdir(parents=True, exist_ok=True)

    def left(self):
        return self.begun + self.seconds - time.monotonic()

    def stop(self, why):
        """Ends what runs now, and begins nothing more."""
        self.stopped = self.stopped or why

    def keep(self, name, line):
        with self._guard, open(self.out / name, "a") as file:
            file.write(json.dumps(line, default=str) + "\n")

    def run(self, step):
        """Runs a step to its end, or to the end of its time; never raises."""
        try:
            ended = self._without(step) or Running(self, step).ended()
        except Exception as error:  # noqa: BLE001
            ended = Ended(step, FAILED, f"what it did cannot be kept: {error!r}")
        self.ended.append(ended)
        self.keep("steps.jsonl", {
            "step": step.name, "outcome": ended.outcome, "why": ended.why, "optional": step.optional, "seconds": round(ended.seconds, 1),
            "at": round(time.monotonic() - self.begun, 1), "said": ended.text[-step.tail:], "complaints": ended.complaints})
        return ended

    def side_by_side(self, steps, width=2):
        """Runs steps in this order, some at a time."""
        waiting = list(steps)

        def lane():
            while True:
                with self._guard:
                    if not waiting:
                        return
                    step = waiting.pop(0)
                self.run(step)

        lanes = [threading.Thread(target=lane) for _ in range(width)]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()

    def ended_well(self):
        return all(e.outcome == OK or e.outcome == LACKS and e.step.optional for e in self.ended)

    def _without(self, step):
        if what := next((what for what in step.wants if what in self.lacks), None):
            outcome, where = self.lacks[what]
            return Ended(step, outcome, f"lacks {what} ({where})")
        if not shutil.which(str(step.words[0])):
            return Ended(step, LACKS, f"{step.words[0]} is not here")
        if self.stopped:
            return Ended(step, SKIPPED, f"the run was ended by {self.stopped}")
        if self.left() < step.need * self.slow:
            return Ended(step, SKIPPED, f"{max(0, self.left()):.0f} s are left, and it wants {step.need * self.slow:.0f}")
        return None


class Running:
    """A step under way: a process group of its own, whose output goes to files, so that nobody waits for a pipe."""

    def __init__(self, kit, step):
        self.kit, self.step = kit, step
        self.out, self.err, self.turn = (kit.work / f"{step.name}.{end}" for end in ("out", "err", "turn"))
        self.limit = step.limit * kit.slow
        self.began = time.monotonic()
        self.results, self.other, self.part = [], [], b""

    def ended(self):
        step = self.step
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            try:
                words = [*([] if step.plain else self.kit.prefix), *map(str, step.words)]
                child = subprocess.Popen(words, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=self._env(), cwd=self.kit.work,
                                         start_new_session=True)
            except OSError as error:
                return Ended(step, LACKS, f"{step.words[0]} cannot be started: {error.strerror}")
        with open(self.out, "rb") as self.said:
            try:
                late = self._wait(child)
            finally:
                # Also after an end of its own: whoever is left would hold the device's memory.
                self._kill(child)
            self._take()
        complaints = self.err.read_bytes()[-2500:].decode(errors="replace").strip()
        text = "\n".join([*self.other, self.part.decode(errors="replace")]).strip()
        outcome, why = self._judged(child, late)
        return Ended(step, outcome, why, time.monotonic() - self.began, self.results, text, complaints)

    def _env(self):
        step, kit = self.step, self.kit
        own = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": f"{HERE.parent / 'python'}{os.pathsep}{HERE}",
               "KIT_TMP": str(kit.work), "KIT_STEP": str(self.out), "GRANULE_TORCH_CACHE": str(kit.work / "cache"), "HF_HUB_OFFLINE": "1",
               "NO_COLOR": "1", "COLUMNS": "140"}
        if step.turns:
            own |= {"KIT_LOCK": str(kit.work / "lock"), "KIT_TURN": str(self.turn)}
        return {**os.environ, **own, **kit.env, **step.env}

    def _wait(self, child):
        """Waits for the end; says why there was none. Waiting for a turn does not count, up to as much again as the limit."""
        waited = 0
        while True:
            try:
                child.wait(0.25)
                return ""
            except subprocess.TimeoutExpired:
                self._take()
            took = time.monotonic() - self.began
            if self.step.turns and not self.turn.exists():
                waited = min(took, self.limit)
            if self.kit.stopped:
                return f"ended by {self.kit.stopped}"
            if took > self.limit + waited:
                return f"did not end in {self.limit:.0f} s"
            if self.kit.left() < 0:
                return "was under way when the time for all was over"

    def _kill(self, child):
        """First politely: Python then says where it stood. A process that left the group has the step's mark in its environment."""
        if child.poll() is None:
            signal_group(child.pid, signal.SIGABRT)
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                pass
        signal_group(child.pid, signal.SIGKILL)
        until = time.monotonic() + 2
        while kill_marked(f"KIT_STEP={self.out}\0".encode()) and time.monotonic() < until:
            time.sleep(0.05)
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            pass  # it hangs in the system, where nothing ends it

    def _take(self):
        """Keeps the lines that are complete: what comes before a crash is not lost."""
        *whole, self.part = (self.part + self.said.read()).split(b"\n")
        for line in (line.decode(errors="replace") for line in whole):
            result = parsed(line, self.step.mark)
            if result is None:
                self.other.append(line)
            else:
                self.results.append(result)
                self.kit.keep(self.step.into, result)

    def _judged(self, child, late):
        if late:
            return FAILED, late if child.poll() is not None else f"{late}, and cannot be ended"
        lacked = next((str(result["lacks"]) for result in self.results if "lacks" in result), None)
        if lacked:
            return LACKS, lacked
        wrong = next((result for result in self.results if is_wrong(result)), None)
        if child.returncode < 0:
            return FAILED, f"ended by {signal_name(-child.returncode)}"
        if wrong:
            told = " ".join(str(wrong[key]) for key in ("failed", "name") if key in wrong)
            return FAILED, told or f"not right: {wrong.get('phase') or wrong.get('part') or wrong.get('step')}"
        return (OK, "") if child.returncode == 0 else (FAILED, f"exit code {child.returncode}")


def parsed(line, mark):
    """A result of a program, or nothing."""
    if not line.startswith(mark):
        return None
    try:
        result = json.loads(line[len(mark):])
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None


def is_wrong(result):
    """Whether a result tells of something that is not as it must be. A count named `failed` is a scorecard's."""
    return isinstance(result.get("failed"), str) or result.get("right") is False or bool(result.get("fails"))


def kill_marked(mark):
    """Kills the processes that have this in their environment; says whether there were any."""
    found = False
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
                found = True
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def signal_name(number):
    """Real-time signals between the first and the last have no names."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_group(group, number):
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass
