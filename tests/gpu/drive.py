#!/usr/bin/env python3
"""Runs the kit: steps in the order of their value, each under a limit of its own. Results go to $OUT as they come.

drive.py [--plan main|more|slice] [--seconds 480]

Ends with 1 where a step did not end well, or was not come to; a page of all of it is there in any case.
"""
import argparse
import gzip
import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import page
from steps import FAILED, HERE, LACKS, OK, SKIPPED, Kit, Step

KIT = HERE.parent
# What runs a program on the simulated drivers, where there is no GPU. A machine without one may be slow, too.
RIG = os.environ.get("KIT_RIG")
SLOW = 4 if RIG else 1
GRANULE = KIT / "bin/granule"
DRIVER, TORCH = ("the driver",), ("the driver", "torch")
# A mode in which torch's memory is Granule's.
OURS = (*TORCH, "granule in torch")
KERNELS = (*OURS, "kernels")
MODES = ("native", "granule", "policy", "native-exp", "granule-exp")
# On the rig another machine than the one for whole programs: this one keeps bytes.
BYTES = {"GRANULE_LOOKALIKE": "personality=one-device"} if RIG else {}
WORDS = (["--conf", ""], ["--conf", "expandable_segments:True"], ["--policy", "granule"])


def wants(mode):
    return TORCH if mode.startswith("native") else OURS


def script(name, *words):
    return [sys.executable, "-X", "faulthandler", HERE / f"{name}.py", *words]


def lack(kit, what, found):
    """Where the step that looks for it did not come to its turn, nor do those that want it."""
    if found.outcome != OK:
        kit.lacks[what] = SKIPPED if found.outcome == SKIPPED else LACKS, found.step.name


def look(kit):
    """What there is: without a driver or torch the steps that want them say so."""
    for what, name in (("the driver", "driver"), ("torch", "torch"), ("pytest", "pytest")):
        found = kit.run(Step(f"probe-{name}", script("probe", name), 60, into="machine.jsonl", need=2, optional=what == "pytest"))
        lack(kit, what, found)
    if RIG:
        kit.lacks["kernels"] = LACKS, "the rig's compute nothing"
    facts = (
        Step("nvidia-smi", ["nvidia-smi"], 15, need=2, plain=True, optional=True),
        Step("nvidia-smi-q", ["nvidia-smi", "-q", "-d", "MEMORY,CLOCK,PERFORMANCE,COMPUTE"], 15, need=2, plain=True, optional=True),
        Step("devices", [GRANULE, "devices", "--json"], 25),
        Step("who", [GRANULE, "devices", "--who", "--json"], 25, wants=DRIVER),
        Step("doctor", [GRANULE, "doctor", "--backend", "cuda", "--json"], 45, wants=DRIVER, env=BYTES),
        Step("host", ["bash", "-c", "uname -a; ldd --version | head -1; nproc; free -g; ulimit -a; df -h /tmp /dev/shm; "
                      f"which nvcc g++ ninja; {sys.executable} -m pip list"], 30, plain=True, optional=True),
    )
    for step in facts:
        found = kit.run(step)
        kit.keep("machine.jsonl", {"step": step.name, "said": whole(found) or found.text[:6000] or found.complaints[-1500:] or found.why})


def whole(ended):
    """What a command printed, where that is one JSON object."""
    try:
        return json.loads(ended.text)
    except (ValueError, RecursionError):
        return None


def selftest(kit):
    """As a user enables it. Where the release of torch is refused, that is kept, and the rest runs with what the user can set then."""
    step = Step("selftest", script("selftest"), 150, need=15, wants=TORCH)
    ended = kit.run(step)
    if ended.outcome == FAILED:
        kit.env["GRANULE_TORCH_ANYWAY"] = "1"
        ended = kit.run(Step("selftest-anyway", step.words, 150, need=15, wants=TORCH))
    lack(kit, "granule in torch", ended)


def conformance(kit, seconds):
    """In one run. Where a check takes the whole process down, the areas behind its own are run by another."""
    words = [GRANULE, "conformance", "--backend", "cuda", "--json", "--keep-going"]
    listed = kit.run(Step("conformance-list", [GRANULE, "conformance", "--backend", "cuda", "--list"], 20, wants=DRIVER, env=BYTES, tail=1))
    left = list(dict.fromkeys(line.split(".")[0] for line in listed.text.splitlines() if "." in line))
    until = kit.left() - seconds
    for again in range(len(left)):
        limit = kit.left() - until
        only = [word for area in left for word in ("--area", area)]
        ended = kit.run(Step(f"conformance-{again}" if again else "conformance", [*words, *only], limit, "conformance.jsonl", need=10,
                             wants=DRIVER, env=BYTES, mark="", tail=2500))
        over = {result["area"] for result in ended.results if "area" in result and "passed" in result}
        crashed = ended.seconds > 0 and not any("backend" in result for result in ended.results)
        left = [area for area in left if area not in over][1:]
        if not crashed or not left or kit.left() - 10 < until:
            return


def trains(kit, modes, again=False):
    phases = ["gpt", "resnet"] if again else []
    kit.side_by_side(Step(f"train-{mode}" + ("-again" if again else ""), script("train", mode, *phases), 110, "torch.jsonl", need=20,
                          turns=True, wants=wants(mode)) for mode in modes)


def edge(kit, modes):
    """What what-if says of each capacity, beside what came true."""
    record = kit.run(Step("oom-record", script("oom", "record", "native", kit.work), 60, need=20, wants=TORCH))
    capacities = next((result["capacities"] for result in record.results if "capacities" in result), None)
    if record.outcome != OK or not capacities:
        return

    def foresee():
        words = [GRANULE, "whatif", kit.work / "native.pickle", "--capacity", ",".join(map(str, capacities)), "--json"]
        found = kit.run(Step("whatif", words, 90, need=8, plain=True))
        kit.keep("results.jsonl", {"step": "whatif", **(whole(found) or {"failed": found.why or found.text[-500:]})})

    beside = threading.Thread(target=foresee)
    beside.start()
    for mode in modes:
        kit.run(Step(f"oom-{mode}", script("oom", "truth", mode, kit.work), 70, need=20, wants=wants(mode)))
    beside.join()


def replays(kit):
    keys = ("workload", "conf", "policy", "reserved_bytes_peak", "allocated_bytes_peak", "requested_bytes_peak", "num_device_alloc",
            "num_device_free", "num_alloc_retries", "refused", "ops", "ns_per_op")
    for trace in sorted((KIT / "traces").glob("*.trace.gz")):
        for at, words in enumerate(WORDS):
            step = Step(f"replay-{trace.name.split('.')[0]}-{at}", [GRANULE, "replay", trace, "--backend", "cuda", "--json", *words], 40, wants=DRIVER)
            ended = kit.run(step)
            if not ended.seconds:
                continue
            said = whole(ended)
            kept = {key: said.get(key) for key in keys} if said else {"failed": ended.why or ended.text[-500:]}
            kit.keep("results.jsonl", {"step": "replay", **kept})


def sleeps(kit, modes):
    for mode in modes:
        kit.run(Step(f"sleep-{mode}", script("sleepwake", mode, "0.05" if RIG else "6"), 80, need=25, wants=OURS))


def driver_step(kit, name, limit, env=None):
    kit.run(Step(f"driver-{name}", [KIT / "bin/drvcost", name], limit, "driver.jsonl", need=10, wants=DRIVER, env=env or {}))


def compiling():
    """The shim compiled there, as at a user's first use of it. The kit has one for the torch that it was packed for."""
    return Step("compile-shim", script("shim", KIT / "compiled"), 240, need=10, wants=("torch",), plain=True, optional=True)


def adaptors():
    for part in ("dlpack", "cupy", "numba", "ipc_native", "ipc", "ipc_native_exp", "ipc_exp", "ipc_policy", "compile_"):
        yield Step(f"adaptor-{part}", script("adaptors", part), 75, need=12, wants=KERNELS if part == "compile_" else OURS,
                   optional=part in ("cupy", "numba", "compile_"))


def sanitizers():
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    words = [found, "--tool", "memcheck", "--report-api-errors", "no", "--print-limit", "20", "--error-exitcode", "9"]
    for mode in ("policy", "granule"):
        yield Step(f"sanitizer-{mode}", [*words, *script("train", mode, "gpt", "streams")], 120, need=30, wants=OURS, optional=True,
                   env={"KIT_TINY": "1", "PYTORCH_NO_NVML": "1"})


def plan_main(kit):
    look(kit)
    beside = threading.Thread(target=kit.run, args=(compiling(),))
    beside.start()
    selftest(kit)
    driver_step(kit, "aliases", 20, BYTES)
    conformance(kit, 120)
    driver_step(kit, "semantics", 45)
    driver_step(kit, "cost", 60)
    trains(kit, ("native", "granule", "policy", "native-exp", "granule-exp"))
    kit.run(Step("lag", script("lag"), 70, need=20, wants=TORCH))
    sleeps(kit, ("granule", "policy"))
    edge(kit, ("native", "granule", "native-exp", "policy"))
    kit.side_by_side(Step(f"torch-replay-{mode}", script("replaytorch", mode, KIT / "traces"), 60, need=15, turns=True, wants=wants(mode)) for mode in MODES)
    kit.side_by_side(Step(f"hotpath-{mode}", script("hotpath", mode), 60, need=15, turns=True, wants=OURS) for mode in ("granule", "policy"))
    trains(kit, ("native", "granule", "policy"), again=True)
    replays(kit)
    kit.side_by_side([*adaptors(), *sanitizers()], width=5)
    beside.join()


def plan_more(kit):
    """For what is left of the time: the project's own tests on the real device."""
    look(kit)
    selftest(kit)
    for name, filters in (("policies", "drivers::"), ("sleep", "drivers::"), ("sharing", "processes::")):
        kit.run(Step(f"tests-{name}", [KIT / f"bin/test-{name}", filters, "--nocapture"], 90, need=10, wants=DRIVER, optional=True,
                     env={"GRANULE_REAL_DRIVERS": "cuda"}))
    tests = KIT / "tests/torch"
    words = [sys.executable, "-m", "pytest", tests, "-p", "no:cacheprovider", "-q", "-rfE", "--tb=short", "-k",
             "test_allocation or test_stats or test_graphs or test_pools or test_sharing or test_sleep"]
    kit.run(Step("tests-torch", words, kit.left(), need=40, wants=(*OURS, "pytest"), optional=True, tail=200_000,
                 env={"GRANULE_E2E_REAL": "1", "PYTHONPATH": f"{KIT / 'python'}{os.pathsep}{tests}", "GRANULE_COMMAND": str(GRANULE)}))


def plan_slice(kit):
    """A little of each kind, for a machine without a GPU."""
    look(kit)
    selftest(kit)
    driver_step(kit, "aliases", 20, BYTES)
    driver_step(kit, "semantics", 45)
    conformance(kit, 60)
    trains(kit, ("native", "granule"))
    sleeps(kit, ("policy",))
    edge(kit, ("granule",))


PLANS = {"main": plan_main, "more": plan_more, "slice": plan_slice}


def finish(kit):
    """The recording, packed; the page; and the shortest answer, printed."""
    recording = kit.work / "native.pickle"
    if recording.exists():
        packed = gzip.compress(recording.read_bytes(), 4)
        if len(packed) < 12 << 20:
            (kit.out / "native.pickle.gz").write_bytes(packed)
    (kit.out / "summary.md").write_text(page.text(kit.out), encoding="utf-8", errors="replace")
    print(page.in_short(kit.out)[-11_000:].encode("ascii", "replace").decode())
    shutil.rmtree(kit.work, ignore_errors=True)
    print(f"results: {kit.out.resolve()} (summary.md first)")


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--plan", default="main", choices=PLANS)
    given.add_argument("--seconds", type=float, default=480, help="after which nothing runs any more")
    given = given.parse_args()
    kit = Kit(os.environ.get("OUT") or "out", given.seconds, SLOW, [RIG, "--"] if RIG else [])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: kit.stop(signal.Signals(number).name))
    version = KIT / "VERSION"
    kit.keep("machine.jsonl", {"step": "kit", "date": time.strftime("%Y-%m-%d", time.gmtime()), "version": version.read_text().strip() if version.exists() else "unknown", "plan": given.plan,
                               "seconds": given.seconds, "python": sys.version.split()[0], "simulated": bool(RIG)})
    try:
        PLANS[given.plan](kit)
    finally:
        finish(kit)
    sys.exit(not kit.ended_well())


if __name__ == "__main__":
    main()
