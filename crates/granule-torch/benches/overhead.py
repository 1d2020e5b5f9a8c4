"""What a cached allocation and its free cost: Granule's full class against PyTorch's native allocator, in one process.

    python benches/overhead.py [--pairs 20000] [--rounds 101]

Rounds of the two alternate, so that both see the same machine; the medians are compared. Needs a device, real or fake: only
cached memory is used, so no driver call is in the loop except those that PyTorch itself makes (which device is current).
"""

from __future__ import annotations

import argparse
import statistics

import torch

import granule_torch
from granule_torch import _shim

SIZES = {"512 B": 512, "64 KiB": 64 << 10, "4 MiB": 4 << 20, "64 MiB": 64 << 20}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=20_000, help="allocations in a round")
    parser.add_argument("--rounds", type=int, default=101)
    arguments = parser.parse_args()

    granule_torch.enable()
    torch.cuda.init()
    shim = _shim.load()
    ours = shim.granule_torch_current_allocator()
    native = shim.granule_torch_displaced_allocator()
    shim.granule_torch_prepare(native, torch.cuda.device_count())

    print(f"{'':24}{'ratio':>8}{'granule':>12}{'native':>12}   (ns per allocation and free, medians)")
    for path, loop in {"tensor": shim.granule_torch_time_data_ptr, "raw": shim.granule_torch_time_raw}.items():
        for label, size in SIZES.items():
            times: dict[int, list[float]] = {ours: [], native: []}
            for allocator in times:
                loop(allocator, size, 1000)
            for _ in range(arguments.rounds):
                for allocator, taken in times.items():
                    taken.append(loop(allocator, size, arguments.pairs))
            mine, theirs = (statistics.median(taken) for taken in times.values())
            print(f"{path + ' ' + label:24}{mine / theirs:>8.2f}{mine:>12.1f}{theirs:>12.1f}")


if __name__ == "__main__":
    main()
