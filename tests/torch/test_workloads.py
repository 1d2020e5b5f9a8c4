"""Real training and inference programs: each runs to its end on every allocator, with native's statistics throughout; under
Granule's own policy, with native's requests and no more memory than native held.

The programs are those of the rig. Their models have their real sizes, since the rig's memory costs nothing.
"""
import gc
import os
import random

import torch
from allocators import current
from scene import GRANULE, NATIVE, PLUGGABLE, POLICY, Run, release, scene

RUNS = (
    Run("default", gib=80),
    Run("expandable", settings="expandable_segments:True", gib=80, without=(PLUGGABLE,)),
    Run(
        "tuned",
        settings="max_split_size_mb:512,garbage_collection_threshold:0.8,roundup_power2_divisions:[256:1,512:2,>:4]",
        gib=80,
        without=(PLUGGABLE,),
    ),
)

# What the program asked for, whoever serves it.
ASKED = [f"allocation.all.{what}" for what in ("current", "peak", "allocated", "freed")]
ASKED += ["requested_bytes.all.allocated", "num_ooms"]
HELD = "reserved_bytes.all.peak"
# Two granules of the usual size. Only expandable segments come that close: of the seven workloads under three settings, three
# held 4 to 36 MiB more than they do. With torch 2.14 and older one of them asks for other sizes: on 2.11, 74 MiB more are held
# after GPT-2, which makes granules of 32 MiB.
ROUNDING = ((2 * 24) if release() >= (2, 15) else (3 * 32)) << 20


def no_worse(native, policy):
    """The same requests at every step, and at most as much memory held, up to what rounding to granules costs."""
    for at, (left, right) in enumerate(zip(native, policy, strict=True)):
        for key in ASKED:
            if left[key] != right[key]:
                yield f"  [{at}].{key}: {left[key]} | {right[key]}"
    left, right = native[-1][HELD], policy[-1][HELD]
    if right > left + ROUNDING:
        yield f"  {HELD}: {left} | {right}, which is {right / left:.4f} times as much"


EVERY = dict(allocators=(NATIVE, PLUGGABLE, GRANULE, POLICY), judge=no_worse)


def workload(name, iterations, long):
    """All statistics before each iteration and at the end; fewer iterations in the slice than in a long run."""
    import workloads

    random.seed(0)
    torch.manual_seed(0)
    gc.collect()
    # Autocast's cache of weights lets go of them in the order of its hash table, which is that of addresses in the
    # heap: native's own statistics differ with what else is in the process.
    torch.set_autocast_cache_enabled(False)
    gc.disable()  # Cycles go at the iterations' boundaries only, so that runs are equal.
    seen = []

    def mark(_):
        # PyTorch gives a pluggable allocator no statistics.
        seen.append(None if current() == PLUGGABLE else dict(torch.cuda.memory_stats()))

    number = long if os.environ["GRANULE_E2E_LONG"] == "1" else iterations
    kept = workloads.WORKLOADS[name](mark, number)
    mark(None)
    torch.cuda.synchronize()
    del kept
    gc.enable()
    gc.collect()
    assert len(seen) > number
    return seen


# By far the longest.
@scene(**EVERY, long=("tuned",))
def test_gpt2_train():
    return workload("gpt2_train", 2, long=8)


@scene(**EVERY)
def test_llama_lora():
    return workload("llama_lora", 2, long=8)


@scene(**EVERY)
def test_resnet_train():
    return workload("resnet_train", 1, long=3)


@scene(**EVERY)
def test_bert_varlen():
    return workload("bert_varlen", 3, long=16)


@scene(**EVERY)
def test_llama_generate():
    return workload("llama_generate", 3, long=14)


@scene(**EVERY)
def test_dlrm_prefetch():
    return workload("dlrm_prefetch", 6, long=40)


@scene(**EVERY)
def test_graphs():
    return workload("graphs", 4, long=4)


def test_every_program_of_the_rig_is_here():
    import workloads

    assert {name[len("test_"):] for name in globals() if name.startswith("test_")} >= set(workloads.WORKLOADS)
