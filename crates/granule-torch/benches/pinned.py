"""How much pinned memory is held for what is asked: PyTorch's own allocator, its threshold option, and Granule's.

    python benches/pinned.py

Each program runs in a process of its own with each of them. Needs a device, real or fake. Memory is not touched, except in the
register mode and by the data loader.
"""

from __future__ import annotations

import collections
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator

import torch

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
THRESHOLD = "pinned_max_round_threshold_mb:1"


def pinned(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16, pin_memory=True)


def nbytes(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def parameters(layers: int = 46) -> Iterator[int]:
    """Those of Gemma 2 27B, 51 GiB, as they are offloaded."""
    kept = [pinned(256000, 4608)] if layers == 46 else []
    for _ in range(layers):
        shapes = [(4096, 4608), (2048, 4608), (2048, 4608), (4608, 4096), *[(36864, 4608)] * 3, *[(4608,)] * 4]
        kept += [pinned(*shape) for shape in shapes]
    yield nbytes(kept)


def registered() -> Iterator[int]:
    """A tenth of them."""
    yield from parameters(4)


class Speech(torch.utils.data.Dataset[list[torch.Tensor]]):
    """Batches of 16 log-mel spectrograms of 2 to 30 s, and their texts."""

    def __len__(self) -> int:
        return 600

    def __getitem__(self, at: int) -> list[torch.Tensor]:
        frames = random.Random(at).randrange(200, 3000)
        return [torch.empty(16, 80, frames), torch.empty(16, frames // 15, dtype=torch.int64)]


def loader() -> Iterator[int]:
    """A data loader with batches of their own sizes, of which eight are on their way."""
    ahead: collections.deque[list[torch.Tensor]] = collections.deque(maxlen=8)
    for batch in torch.utils.data.DataLoader(Speech(), batch_size=None, pin_memory=True):
        yield sum(map(nbytes, [*ahead, batch]))
        ahead.append(batch)


def blocks() -> Iterator[int]:
    """vLLM's blocks on the host: 200 GiB for Llama 3.1 70B, a tensor for each of 80 layers, of 64 KiB for 16 tokens."""
    yield nbytes([pinned(200 * GIB // 80 // (64 * KIB), 32 * KIB) for _ in range(80)])


PROGRAMS = {"parameters": parameters, "registered": registered, "loader": loader, "blocks": blocks}
ALLOCATORS = {"pytorch": "", "threshold": THRESHOLD, "granule": ""}


def measure(program: str, allocator: str) -> None:
    if allocator == "granule":
        import granule_torch

        granule_torch.enable(settings="policy:granule" + (",pinned_use_cuda_host_register:True" if program == "registered" else ""))
    torch.cuda.init()
    begun = time.perf_counter()
    asked = max(PROGRAMS[program]())
    seconds = time.perf_counter() - begun
    stats = torch.cuda.host_memory_stats()
    calls = [stats["active_requests.allocated"], stats["num_host_alloc"], stats["num_host_free"]]
    print(json.dumps([asked, stats["allocated_bytes.peak"], *calls, seconds]))


def main() -> None:
    if sys.argv[1:]:
        return measure(*sys.argv[1:])
    print(f"{'':12}{'':12}{'asked MiB':>10}{'held MiB':>10}{'ratio':>7}{'requests':>10}{'pinned':>8}{'unpinned':>9}{'s':>7}")
    for program in PROGRAMS:
        for allocator, options in ALLOCATORS.items():
            if program == "registered" and allocator != "granule":
                options = ",".join(filter(None, [options, "pinned_use_cuda_host_register:True"]))
            env = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": options}
            done = subprocess.run([sys.executable, __file__, program, allocator], env=env, check=True, capture_output=True, text=True)
            asked, held, requests, made, freed, seconds = json.loads(done.stdout.splitlines()[-1])
            print(f"{program:12}{allocator:12}{asked >> 20:>10}{held >> 20:>10}{held / asked:>7.3f}{requests:>10}{made:>8}{freed:>9}{seconds:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
