"""Graphs with pools of their own, pools that end, and requests that are refused: by the device, and by a fraction of it."""
import torch

MIB = 1 << 20


def bytes_of(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


kept = []
for _ in range(4):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        large = bytes_of(100)
        kept.append((graph, large[:10].clone()))
        del large
for _ in range(3):
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = bytes_of(100)
    outside = bytes_of(50)
    del inside, outside, pool
ended = torch.cuda.CUDAGraph()
with torch.cuda.graph(ended):
    large = bytes_of(200)
    del large
ended.reset()
torch.cuda.empty_cache()
after = bytes_of(60)
figures = torch.cuda.memory_stats()
for fraction in (1.0, 0.001):
    torch.cuda.set_per_process_memory_fraction(fraction)
    try:
        bytes_of(8 << 10)
    except torch.OutOfMemoryError:
        pass
print(figures["reserved_bytes.all.peak"], figures["num_device_alloc"])
