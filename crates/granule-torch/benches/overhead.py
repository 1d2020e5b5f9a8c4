"""What allocations cost: Granule's full class against PyTorch's native allocator, in one process.

    python benches/overhead.py [--pairs 20000] [--rounds 101] [--settings TEXT]

Rounds of the two alternate, so that both see the same machine; the medians are compared. The first rows are loops in C++, the
others calls in Python. Needs a device, real or fake: only cached memory is used, so no driver call is in the loop except
for those that ask for or about events, and those that PyTorch itself makes (which device is current).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import torch

import granule_torch
from granule_torch import _shim

SIZES = {"512 B": 512, "64 KiB": 64 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}

#: Measures so many pairs with PyTorch's current allocator, the one at this address: nanoseconds for each.
Loop = Callable[[int, int], float]


def tensor() -> torch.Tensor:
    return torch.empty(64 << 10, dtype=torch.uint8, device="cuda")


def timed(call: Callable[[], object], _allocator: int, pairs: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(pairs):
        call()
    return (time.perf_counter_ns() - start) / pairs


def used_elsewhere(side: torch.cuda.Stream) -> None:
    tensor().record_stream(side)


def within_pool(allocator: int, pairs: int) -> float:
    # It comes and goes with the allocator that made it.
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        tensor()
        return timed(tensor, allocator, pairs)


def in_pool(allocator: int, pairs: int) -> float:
    pool = torch.cuda.MemPool()

    def call() -> None:
        with torch.cuda.use_mem_pool(pool):
            tensor()

    call()
    return timed(call, allocator, pairs)


def with_history(context: str | None, stacks: str, allocator: int, pairs: int) -> float:
    torch.cuda.memory._record_memory_history("all", context, stacks, max_entries=10_000)
    try:
        return timed(tensor, allocator, pairs)
    finally:
        torch.cuda.memory._record_memory_history(None)


def loops(shim: object) -> Iterator[tuple[str, Loop]]:
    """The rows, by what they measure."""
    pinned = {
        shim.granule_torch_current_allocator(): shim.granule_torch_current_pinned(),
        shim.granule_torch_displaced_allocator(): shim.granule_torch_displaced_pinned(),
    }
    for used in (False, True):
        for label, size in SIZES.items():
            yield f"pinned {label}{' used' * used}", lambda allocator, pairs, size=size, used=used: (
                shim.granule_torch_time_pinned(pinned[allocator], size, used, pairs)
            )
    for path, loop in {"tensor": shim.granule_torch_time_data_ptr, "raw": shim.granule_torch_time_raw}.items():
        for label, size in SIZES.items():
            yield f"{path} {label}", lambda allocator, pairs, loop=loop, size=size: loop(allocator, size, pairs)
    yield "torch.empty", partial(timed, tensor)
    yield "and record_stream", partial(timed, partial(used_elsewhere, torch.cuda.Stream()))
    yield "within use_mem_pool", within_pool
    yield "use_mem_pool each", in_pool
    yield "history, no stacks", partial(with_history, None, "python")
    yield "history, Python", partial(with_history, "all", "python")
    yield "history, all", partial(with_history, "all", "all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="allocations in a round")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--settings", help="such as policy:granule")
    parser.add_argument("--only", default="", help="rows with this in their name")
    arguments = parser.parse_args()

    granule_torch.enable(settings=arguments.settings)
    torch.cuda.init()
    shim = _shim.load()
    ours = shim.granule_torch_current_allocator()
    native = shim.granule_torch_displaced_allocator()
    shim.granule_torch_prepare(native, torch.cuda.device_count())

    print(f"{'':24}{'ratio':>8}{'granule':>12}{'native':>12}   (ns per allocation and free, medians)")
    for label, loop in loops(shim):
        if arguments.only not in label:
            continue
        times: dict[int, list[float]] = {ours: [], native: []}
        for allocator, taken in [*times.items()] * (1 + arguments.rounds):
            shim.granule_torch_make_current(allocator)
            taken.append(loop(allocator, arguments.pairs))
        mine, theirs = (statistics.median(taken[1:]) for taken in times.values())
        print(f"{label:24}{mine / theirs:>8.2f}{mine:>12.1f}{theirs:>12.1f}", flush=True)
    shim.granule_torch_make_current(ours)


if __name__ == "__main__":
    main()
