#!/usr/bin/env python3
"""The page of a run: page.py RESULTS [FOLDER]

Prints it; with a folder, writes it there as gpu-CARD.md. Results come from elsewhere, so every text of theirs stands as code, which no
reader of Markdown takes for a link or for HTML.
"""
import json
import re
import sys
from pathlib import Path

GIB = 1 << 30
# More of a file is no result of the kit.
MOST = 32 << 20
NO_CARD = "no card"
PEAK, REQUESTED = "reserved_bytes.all.peak", "requested_bytes.all.peak"


def lines(folder, name):
    """The objects of a file of results; what is none is left out."""
    try:
        with open(Path(folder) / name, encoding="utf-8", errors="replace") as file:
            texts = file.read(MOST).split("\n")
    except OSError:
        return []
    found = []
    for text in texts:
        try:
            found.append(json.loads(text))
        except (ValueError, RecursionError):
            continue
    return [line for line in found if isinstance(line, dict)]


def code(value, most=300):
    text = value if isinstance(value, str) else json.dumps(value)
    text = " ".join(text.replace("`", "'").replace("|", "¦").split())[:most]
    return f"`{text}`" if text else ""


class Ready(str):
    """What stands as it is."""


def words(text):
    """A sentence of the page's own, in which names of theirs may be: no character of it means anything to a reader of Markdown."""
    return Ready(re.sub(r"([\\`*_\[\]<>|#&])", r"\\\1", " ".join(text.split())))


def shown(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value) if isinstance(value, int) else code(value)


def table(rows, columns):
    """`columns`: titles, and what of a row stands under each: a key, or a function."""
    for at, row in enumerate(rows):
        if at == 0:
            yield "| " + " | ".join(columns) + " |"
            yield "|---" * len(columns) + "|"
        cells = (found(row) if callable(found) else row.get(found) for found in columns.values())
        yield "| " + " | ".join(cell if isinstance(cell, Ready) else shown(cell) for cell in cells) + " |"


def whole(rows, *hidden):
    """Everything that rows have, but for these keys and longer texts."""
    kept = [key for row in rows for key, value in row.items() if key not in ("step", *hidden)]
    return table(rows, {re.sub(r"[\W_]", " ", key): key for key in dict.fromkeys(kept)})


def gib(key):
    return lambda row: Ready(f"{row[key] / GIB:.3f}") if isinstance(row.get(key), int) else None


def figure(key):
    """One of the allocator's figures."""
    return lambda row: Ready(f"{row['figures'][key] / GIB:.3f}") if isinstance(row.get("figures"), dict) else None


def waste(row):
    figures = row["figures"]
    return figures[PEAK] / figures[REQUESTED]


def calls(row):
    return Ready(f"{int(row['figures']['num_device_alloc'])} + {int(row['figures']['num_device_free'])}")


class Results:
    """All that a run left."""

    def __init__(self, folder):
        self.machine, self.steps, self.checks, self.driver, self.torch, self.others = (
            lines(folder, f"{name}.jsonl") for name in ("machine", "steps", "conformance", "driver", "torch", "results"))
        # Of runs into one folder, the last one's word on each step.
        self.steps = list({str(step.get("step")): step for step in self.steps}.values())
        self.probes = {str(line.get("what")): line for line in self.machine if line.get("step") == "probe"}
        self.kits = [line for line in self.machine if line.get("step") == "kit"]

    def of(self, step, **wanted):
        return [line for line in self.others if line.get("step") == step and all(line.get(key) == value for key, value in wanted.items())]

    def card(self):
        """The card's name, by torch, or by the driver."""
        if name := self.probes.get("torch", {}).get("device"):
            return str(name)
        said = [line.get("said") for line in self.machine if line.get("step") == "devices"]
        try:
            return str(next(device["name"] for found in said for backend in found["backends"] if backend["name"] == "cuda" for device in backend["devices"]))
        except (LookupError, TypeError, StopIteration):
            return NO_CARD

    def refused(self):
        """Why there is no page of a card here."""
        if any(kit.get("simulated") for kit in self.kits):
            return "the run was on simulated drivers"
        return "no device was found" if self.card() == NO_CARD else None

    def training(self, phase):
        return [line for line in self.torch if line.get("step") == "train" and line.get("phase") == phase]

    def trained(self, phase, mode=None):
        return [run for run in self.training(phase) if "series" in run and mode in (None, run["mode"])]

    def bad_steps(self):
        return [step for step in self.steps if step.get("outcome") != "ok"]


def as_natively(results, phase, run):
    """Whether losses and parameters are those of PyTorch's own allocator, and the figures after each step, too: nothing where they need not be."""
    first = next(iter(results.trained(phase, "native")), None)
    if not first:
        return None, None
    same = all(run[key] == first[key] for key in ("losses", "parameters"))
    if run["mode"].startswith("policy"):
        return same, None
    against = next(iter(results.trained(phase, "native-exp" if run["mode"].endswith("-exp") else "native")), None)
    return same, against and all(run[key] == against[key] for key in ("series", "segments"))


def foreseen(results):
    """What what-if said of each capacity and mode, with what came true: rows of (mode, capacity, said, true)."""
    modes = {"default": "native", "expandable_segments:True": "native-exp"}
    said = {}
    for candidate in (c for line in results.of("whatif") for c in line.get("candidates", [])):
        mode = "policy" if candidate["policy"] == "granule" else modes.get(candidate["name"])
        for outcome in candidate["outcomes"]:
            said.setdefault((mode, outcome["capacity"]), not outcome["refused"])
    # Under the pytorch policy a program fits where it does natively.
    for line in results.of("oom", phase="truth"):
        mode = {"granule": "native"}.get(line["mode"], line["mode"])
        yield line["mode"], line["capacity"], said.get((mode, line["capacity"])), line["fits"]


# The shortest answers: rows of (question, answer).


def answer_torch(results):
    for line in results.of("selftest"):
        yield f"torch {line.get('torch', '')}", "taken" if line.get("right") else f"refused: {line.get('failed', '')[:200]}"


def answer_conformance(results):
    areas = [line for line in results.checks if "area" in line and "name" not in line]
    if areas:
        counts = [sum(int(area[key]) for area in areas) for key in ("passed", "failed", "skipped")]
        ended = any("backend" in line for line in results.checks)
        yield "conformance", "{} passed, {} failed, {} do not apply".format(*counts) + ("" if ended else "; it did not come to its end")


def answer_aliases(results):
    found = [line for line in results.driver if line.get("step") == "aliases"]
    if asked := [line for line in found if "right" in line]:
        wrong = [f"{line['question']} ({line['wrong_words']} words)" for line in asked if not line["right"]]
        yield "what is written at one place is read at another", f"WRONG: {'; '.join(wrong)}" if wrong else f"right in {len(asked)} ways"
    for line in (line for line in found if "why" in line):
        yield "how that is known", line["why"]


def answer_training(results):
    for phase in ("gpt", "resnet"):
        base = min((run["step_ms_mean"] for run in results.trained(phase, "native")), default=None)
        for mode in dict.fromkeys(run["mode"] for run in results.trained(phase)):
            runs = results.trained(phase, mode)
            same, exact = zip(*(as_natively(results, phase, run) for run in runs))
            said = [f"{waste(runs[0]):.4f} reserved for what was requested"]
            if base:
                said.insert(0, f"{min(run['step_ms_mean'] for run in runs) / base:.3f} of native's time")
                said.append(f"losses and parameters {'as' if all(same) else 'NOT AS'} natively")
            if exact[0] is not None:
                said.append("figures after each step, too" if all(exact) else "FIGURES DIFFER")
            yield f"{phase}, {mode}", ", ".join(said)
    for phase in ("streams", "graphs"):
        if runs := results.training(phase):
            wrong = [run["mode"] for run in runs if run.get("fails") or "failed" in run]
            yield phase, f"wrong under {', '.join(wrong)}" if wrong else f"right in {len(runs)} runs"


def answer_sleep(results):
    if sleeps := [line for line in results.of("sleep") if "right" in line]:
        speeds = ", ".join(f"{line['mode']} {line['out_gb_s']} and {line['back_gb_s']}" for line in sleeps if line["phase"] == "pinned-keep")
        yield "sleep and wake", f"contents {'right' if all(line['right'] for line in sleeps) else 'WRONG'}; GB/s out and back: {speeds}"


def answer_edge(results):
    if edge := [row for row in foreseen(results) if row[2] is not None]:
        yield "what-if", f"{sum(said == true for _, _, said, true in edge)} of {len(edge)} foreseen"


def answer_others(results):
    if parts := results.of("adaptors"):
        wrong = [line["part"] for line in parts if line.get("right") is False]
        yield "other libraries", f"wrong: {', '.join(wrong)}" if wrong else "right: " + ", ".join(line["part"] for line in parts if "lacks" not in line)


def answer_steps(results):
    bad, groups, optional = results.bad_steps(), {}, 0
    for step in bad:
        if step.get("outcome") == "lacks" and step.get("optional"):
            optional += 1
        else:
            groups.setdefault((step.get("outcome"), str(step.get("why"))), []).append(str(step.get("step")))
    yield "steps", f"{len(results.steps) - len(bad)} of {len(results.steps)} ended well" + (f", {optional} lack what is optional" if optional else "")
    for (outcome, why), names in groups.items():
        if outcome == "lacks":
            outcome, why = "lacks" if len(names) == 1 else "lack", why.removeprefix("lacks ")
        yield f"{len(names)} {outcome} {why[:160]}", ", ".join(names)


ANSWERS = (answer_torch, answer_conformance, answer_aliases, answer_training, answer_sleep, answer_edge, answer_others, answer_steps)


def answers(results):
    for answer in ANSWERS:
        try:
            yield from ((question, str(said)) for question, said in answer(results))
        except Exception as error:  # noqa: BLE001
            yield answer.__name__.removeprefix("answer_"), f"results have another form than expected: {error!r}"


def part_steps(results):
    yield from table(results.bad_steps(), {"step": "step", "outcome": "outcome", "why": "why", "seconds": "seconds"})


def part_machine(results):
    yield from whole(list(results.probes.values()))


def part_conformance(results):
    yield from table([line for line in results.checks if "area" in line and "name" not in line],
                     {"area": "area", "passed": "passed", "failed": "failed", "do not apply": "skipped"})
    yield ""
    without = {}
    for check in results.checks:
        if check.get("outcome") == "skipped":
            without.setdefault(str(check.get("why")), []).append(check)
        elif check.get("outcome") not in (None, "passed"):
            yield f"- {code(check['outcome'])} {code(check.get('name', ''))}: {code(check.get('why') or '')}"
    for why, checks in without.items():
        yield f"- {len(checks)} do not apply: {code(why)}"


def part_driver(results):
    costs = [line for line in results.driver if "median_ns" in line]
    sizes = sorted({line["bytes"] for line in costs})
    by = {}
    for line in costs:
        by.setdefault(line["call"], {})[line["bytes"]] = line["median_ns"]
    if costs:
        yield "Median nanoseconds. `driver.jsonl` is what `--cost` takes."
        yield ""
    names = {size: f"{size >> 20} MiB" if size else "any size" for size in sizes}
    columns = {name: (lambda row, size=size: row[1].get(size)) for size, name in names.items()}
    yield from table(list(by.items()), {"call": lambda row: row[0], **columns})
    yield ""
    for call in ("many", "copies"):
        yield from whole([line for line in results.driver if line.get("call") == call], "call")
        yield ""
    yield from table([line for line in results.driver if line.get("step") == "aliases" and "question" in line],
                     {"two places": "question", "wrong words": "wrong_words", "right": "right"})
    yield ""
    asked = [line for line in results.driver if line.get("step") == "semantics"]
    yield from table(asked, {"question": "question", "waits": "waits", "answer": "name", "value": "value", "ms": "ms"})
    yield ""
    for line in results.driver:
        if "failed" in line or "missing" in line:
            yield f"- {code(line)}"


def part_training(results):
    for phase in ("gpt", "resnet"):
        columns = {
            phase: "mode", "ms a step": "step_ms", "mean": "step_ms_mean", "worst": "worst_warm_ms", "reserved GiB": figure(PEAK),
            "requested GiB": figure(REQUESTED), "ratio": waste, "device calls": calls, "retries": lambda run: run["figures"]["num_alloc_retries"],
            "losses, parameters as natively": lambda run: as_natively(results, phase, run)[0], "figures": lambda run: as_natively(results, phase, run)[1],
        }
        yield from table(results.trained(phase), columns)
        yield ""
    for phase in ("streams", "graphs"):
        yield from table([run for run in results.training(phase) if "failed" not in run],
                         {phase: "mode", **{key.replace("_", " "): key for key in ("crossings", "replays", "fails", "crossing_s", "replay_s", "outputs")}})
        yield ""
    for run in results.torch:
        if "failed" in run:
            yield f"- {code(run.get('mode', ''))} {code(run.get('phase', ''))}: {code(run['failed'], 600)}"
        for warning in run.get("warnings") or []:
            yield f"- {code(run.get('mode', ''))} was warned: {code(warning)}"


def part_edge(results):
    yield from table(list(foreseen(results)), {
        "mode": lambda row: row[0], "GiB": lambda row: row[1] / GIB, "what-if says it fits": lambda row: row[2], "it fits": lambda row: row[3]})
    yield ""
    texts = {line["mode"]: line.get("text") for line in results.of("oom", phase="truth") if not line["fits"]}
    for mode, text in texts.items():
        yield f"- {code(mode)}: {code(text or '', 600)}"
    yield ""
    yield from table(results.of("oom", phase="full"), {
        "all of the device": "mode", "reserved GiB": figure("reserved_bytes.all.current"), "total GiB": gib("total"), "free then": "free_when_full", "text": "text"})


def part_recorded(results):
    rows = results.of("replaytorch")
    first = {(row["mode"], row["trace"]): row for row in rows if "figures" in row}

    def same(row):
        against = first.get(("native-exp" if row["mode"].endswith("-exp") else "native", row["trace"]))
        return None if row["mode"].startswith("policy") or not against else row["figures"] == against["figures"]

    yield from table([row for row in rows if "figures" in row], {
        "program": "trace", "mode": "mode", "cold s": "cold_s", "warm s": "warm_s", "reserved GiB": figure(PEAK), "ratio": waste, "device calls": calls,
        "refused": "refused", "figures as natively": same})
    yield ""
    yield from whole(results.of("replay"))


def part_hot_path(results):
    yield from whole(results.of("hotpath"))


def part_lag(results):
    yield from whole(results.of("lag"), "mode", "torch")


def part_sleep(results):
    yield from whole(results.of("sleep"), "where")


def part_others(results):
    yield from whole(results.of("adaptors"), "where", "how")
    yield ""
    yield from whole(results.of("compile"), "headers")


# The book's table of what only hardware decides, in its words: what asks each. A call is one whose cost was measured; what begins
# with "lacks" is a call that the library may not have.
ASSUMED = {
    "the library keeps calls that CUDA 13's headers dropped": ("lacks cuGraphNodeGetDependencies", "lacks cuEventElapsedTime"),
    "memory is aligned to 512 bytes": ("memory.aligned", "pools.memory_is_aligned", "engine.blocks_are_aligned"),
    "host functions of independent streams run beside each other": (),
    "creating, mapping, opening, unmapping and releasing memory waits for no other stream's kernels": tuple(
        f"does {call} wait for a kernel of 200 ms on another stream" for call in ("cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease")),
    "the costs of driver calls": ("cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"),
    "virtual memory and event queries are legal in a relaxed capture": (
        "capture.queries_are_legal", "cuMemAlloc during a global capture, thread relaxed", "cuEventQuery the same"),
    "released memory is free at once; wrong frees and mappings are refused; memory tells whether it can be shared": (
        "free memory that comes back at once with its release", "free memory after its unmap", "cuMemFree of an inner address", "cuMemFree twice",
        "mapped where something is mapped already", "properties: handle types"),
    "a pointer's range begins at its reservation, and its address range is its mapping": (
        "RANGE_START_ADDR minus mapping", "cuMemGetAddressRange in a mapping: base minus mapping", "cuMemGetAddressRange in a mapping: size"),
    "a device that offers fabric handles may refuse them": ("attribute FABRIC", "memory for fabric handles"),
    "all virtual memory can be reached by network cards; growable sharing needs the right to pidfd_getfd": (
        "attribute RDMA_WITH_VMM", "memory for network cards", "ipc.physical_memory_arrives"),
    "a getpid and a cuCtxGetCurrent in each call cost next to nothing": ("cuCtxGetCurrent",),
}


def part_assumed(results):
    """What the card answered to each."""
    asked, missing = {}, [line["missing"] for line in results.driver if "missing" in line]
    if any(line.get("step") == "semantics" for line in results.driver):
        asked = {look: "yes" if look[6:] in missing else "no" for looks in ASSUMED.values() for look in looks if look.startswith("lacks ")}
    for line in results.driver:
        if "waits" in line:
            asked[f"{line['question']}"] = "yes" if line["waits"] else "no"
        elif line.get("step") == "semantics":
            asked[f"{line['question']}"] = f"{line['name']}, {line['value']}"
        elif "median_ns" in line and str(line["call"]) not in asked:
            asked[f"{line['call']}"] = f"{line['median_ns']} ns" + (f" ({line['bytes']} bytes)" if line["bytes"] else "")
    asked |= {f"{check['name']}": f"{check['outcome']}" for check in results.checks if "name" in check}
    if asked:
        yield from table(list(ASSUMED.items()), {"assumed": lambda row: words(row[0]), "the card's answer": lambda row: Ready(
            code("; ".join(f"{look}: {asked[look]}" for look in row[1] if look in asked), 600) or "not asked")})


PARTS = {
    "What Granule assumes": part_assumed, "Steps that did not end well": part_steps, "The machine": part_machine, "Conformance": part_conformance, "The driver": part_driver,
    "Training": part_training, "How late the device is": part_lag, "Sleep and wake": part_sleep, "At the edge": part_edge,
    "Recorded programs": part_recorded, "Hot path": part_hot_path, "Other libraries, and the shim compiled there": part_others,
}


def made(work):
    """A part's lines, as far as they could be made of what is there."""
    found = []
    try:
        for line in work:
            found.append(line)
    except Exception as error:  # noqa: BLE001
        found.append(f"\nThe rest has another form than expected: {code(repr(error))}.")
    return "\n".join(found).strip()


def in_short(folder):
    return "\n".join(table(dict.fromkeys(answers(Results(folder))), {"question": lambda row: words(row[0]), "answer": lambda row: words(row[1])}))


def text(folder):
    results = Results(folder)
    parts = [f"# {code(results.card())}"]
    for kit in results.kits:
        parts.append(f"{code(kit.get('date', ''))}: plan {code(kit.get('plan', ''))}, {shown(kit.get('seconds'))} s, Python {code(kit.get('python', ''))}, "
                     f"kit {code(kit.get('version', ''))}." + (" Simulated drivers: kernels computed nothing, and no time means anything." if kit.get("simulated") else ""))
    parts.append(in_short(folder))
    for title, part in PARTS.items():
        if said := made(part(results)):
            parts.append(f"## {title}\n\n{said}")
    return "\n\n".join(parts) + "\n"


def file_name(card):
    """A name that is one file's, whatever the card is called."""
    words = "-".join(re.findall(r"[a-z0-9]+", card.lower()))[:60].strip("-")
    return f"gpu-{words or 'unknown'}.md"


def main():
    if len(sys.argv) < 3:
        print(text(sys.argv[1]))
        return
    if not lines(sys.argv[1], "steps.jsonl"):
        sys.exit(f"{sys.argv[1]} has no results of the kit: it is the folder that $OUT named there, with steps.jsonl in it")
    results = Results(sys.argv[1])
    if why := results.refused():
        sys.exit(f"no page is written, because {why}: {Path(sys.argv[1]) / 'summary.md'} has what was seen")
    path = Path(sys.argv[2]) / file_name(results.card())
    path.write_text(text(sys.argv[1]), encoding="utf-8", errors="replace")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
