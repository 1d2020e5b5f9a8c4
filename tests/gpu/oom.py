"""What happens at the edge, and whether whatif foresees it.

oom.py record MODE FOLDER       runs the program with room, leaves a snapshot and the capacities to try
oom.py truth MODE FOLDER        runs it under each of those capacities: fits or not, retries, peaks, the text of the refusal
"""
import gc
import json
import os
import re
import sys
import time

import common
from common import FAKE, TINY, say

FACTORS = (1.005, 1.02, 1.05, 1.1, 1.2)


def program(batches):
    """Training with lengths that vary, from nothing to the end; an evaluation in the middle."""
    import train

    run = train.GptRun()
    for step in batches:
        loss = run.step(*run.inputs(step))
    import torch

    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        run.net(torch.randint(0, run.vocab, (run.batch, 900), generator=run.generator).cuda())
    for step in batches[: len(batches) // 2]:
        loss = run.step(*run.inputs(step + 3))
    return loss.item()


STEPS = range(4 if TINY else 14)


def clean():
    import torch

    gc.collect()
    common.fresh()
    left = torch.cuda.memory_allocated()
    if left:
        say(step="oom", phase="left", bytes=left)


def text(error):
    """PyTorch's words without numbers that differ from process to process."""
    said = re.sub(r"Process \d+ has [0-9.]+ [MGK]iB memory in use\.?", "Process P has X memory in use.", str(error))
    return re.sub(r"including non-PyTorch memory, this process has [0-9.]+ [MGK]iB", "this process has X", said)


def record(mode, folder):
    import torch

    program(STEPS[:1])  # libraries are loaded, handles made
    clean()
    torch.cuda.memory._record_memory_history(max_entries=400_000, context=None)
    start = time.perf_counter()
    loss = program(STEPS)
    peak = common.figures()
    torch.cuda.memory._dump_snapshot(os.path.join(folder, f"{mode}.pickle"))
    torch.cuda.memory._record_memory_history(enabled=None)
    live = peak["requested_bytes.all.peak"]
    # Whole MiB, which a fraction of the device can say exactly enough.
    capacities = sorted({int(live * factor) >> 20 << 20 for factor in FACTORS})
    with open(os.path.join(folder, "capacities.json"), "w") as file:
        json.dump(capacities, file)
    say(step="oom", phase="record", mode=mode, loss=loss, seconds=round(time.perf_counter() - start, 2), figures=peak, capacities=capacities)


def truth(mode, folder):
    import torch

    with open(os.path.join(folder, "capacities.json")) as file:
        capacities = json.load(file)
    total = torch.cuda.get_device_properties(0).total_memory
    program(STEPS[:1])
    for capacity in capacities:
        clean()
        torch.cuda.set_per_process_memory_fraction(capacity / total)
        said = {}
        try:
            said["loss"] = program(STEPS)
            said["fits"] = True
        except torch.OutOfMemoryError as error:
            said.update(fits=False, text=text(error)[:1200])
            said["at_refusal"] = common.figures()
            if not mode.startswith("native"):
                import granule_torch

                said["report"] = granule_torch.report()[:2500]
            error.__traceback__ = None
            del error
        said["figures"] = common.figures()
        say(step="oom", phase="truth", mode=mode, capacity=capacity, **said)
        gc.collect()
    torch.cuda.set_per_process_memory_fraction(1.0)
    # All that the device has: the refusal is the driver's.
    clean()
    held, refused = [], None
    size = 4 << 30
    while size >= 2 << 20 and len(held) < 500:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError as error:
            refused = refused or text(error)[:700]
            size //= 2
    whole = common.figures()
    if held and not FAKE:
        held[-1].fill_(1)
        held[0][-1024:].fill_(1)
    torch.cuda.synchronize()
    free, _ = torch.cuda.mem_get_info()
    del held
    torch.cuda.empty_cache()
    say(step="oom", phase="full", mode=mode, figures=whole, free_when_full=free, text=refused, free_after=torch.cuda.mem_get_info()[0], total=total)


def body():
    what, mode, folder = sys.argv[1:4]
    common.deterministic()
    how = common.install(mode)
    import torch

    torch.cuda.init()
    say(step="oom", phase="start", what=what, **how)
    globals()[what](mode, folder)


if __name__ == "__main__":
    common.main(body)
