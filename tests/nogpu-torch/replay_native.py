"""Replay a trace through torch's own CUDACachingAllocator on the fake device.

  fakegpu-run replay_native.py TRACE.gz [--json] [--min-capacity] [--empty-cache]
Honours PYTORCH_CUDA_ALLOC_CONF and FAKE_GPU_MEM_GB.  A request that the allocator
refuses (OOM) is counted and skipped, with its later free.  --min-capacity also
looks, by bisection to 16 MiB, for the smallest device on which nothing is refused.
--empty-cache calls torch.cuda.empty_cache() where an iteration ends, as some people advise.
"""
import argparse
import ctypes
import gzip
import json
import os
import sys

ap = argparse.ArgumentParser()
ap.add_argument("trace")
ap.add_argument("--json", action="store_true")
ap.add_argument("--min-capacity", action="store_true")
ap.add_argument("--empty-cache", action="store_true")
args = ap.parse_args()
import torch

core = ctypes.CDLL("libcuda.so.1")
core.fakegpu_peak.restype = ctypes.c_size_t
core.fakegpu_counter_named.restype = ctypes.c_uint64
core.fakegpu_set_capacity.argtypes = [ctypes.c_int, ctypes.c_size_t]

lines = gzip.open(args.trace, "rt").read().splitlines()
meta = json.loads(lines[0][1:])
ev, n_streams, n_ids = [], 1, 0
for l in lines[1:]:
    k, *v = l.split()
    v = [int(x) for x in v]
    ev.append((k, *v))
    if k == "a":
        n_streams, n_ids = max(n_streams, v[2] + 1), v[0] + 1
    elif k == "r":
        n_streams = max(n_streams, v[1] + 1)
if n_streams > 33:
    sys.exit("more streams than torch's pool of 32 holds")
streams = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(n_streams - 1)]


def replay(stop_at_refusal=False):
    live, refused, cur, begun = [None] * n_ids, 0, 0, False
    torch.cuda.set_stream(streams[0])
    u8, empty = torch.uint8, torch.empty
    for t in ev:
        k = t[0]
        if k == "a":
            if t[3] != cur:
                cur = t[3]
                torch.cuda.set_stream(streams[cur])
            try:
                live[t[1]] = empty(t[2], dtype=u8, device="cuda")
            except torch.OutOfMemoryError:
                refused += 1
                if stop_at_refusal:
                    break
        elif k == "f":
            live[t[1]] = None
        elif k == "r":
            if live[t[1]] is not None:
                live[t[1]].record_stream(streams[t[2]])
        elif k == "e" or (k == "i" and args.empty_cache and begun):
            torch.cuda.empty_cache()
        begun = begun or k == "i"
    return refused, live


cap = torch.cuda.get_device_properties(0).total_memory
refused, live = replay()  # what lives to the end is alive while the figures are read
s = torch.cuda.memory_stats()
res = {"trace": os.path.basename(args.trace), "workload": meta["workload"], "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
       "capacity": cap, "refused": refused}
for k in ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes"):
    res[k + "_peak"] = s[k + ".all.peak"]
for k in ("num_device_alloc", "num_device_free", "num_alloc_retries", "num_ooms"):
    res[k] = s[k]
res["driver_peak_held"] = core.fakegpu_peak(0)
for name in ("cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemUnmap"):
    res[name] = core.fakegpu_counter_named(name.encode())
if args.min_capacity:
    del live
    import warnings
    warnings.filterwarnings("ignore")
    step = 16 << 20
    lo, hi = meta["peak_live_requested"] // step - 1, -(-res["driver_peak_held"] // step)
    retries = 0
    while hi - lo > 1:
        mid = (lo + hi) // 2
        torch.cuda.empty_cache()
        torch.cuda.reset_accumulated_memory_stats()
        core.fakegpu_set_capacity(0, mid * step)
        if replay(True)[0]:
            lo = mid
        else:
            hi, retries = mid, torch.cuda.memory_stats()["num_alloc_retries"]
    res["min_capacity"], res["retries_at_min_capacity"] = hi * step, retries
if args.json:
    print(json.dumps(res))
else:
    g = lambda k: f"{res[k] / 2**30:.3f} GiB"
    print(f"{meta['workload']:16} conf={res['conf'] or 'default':28} capacity {res['capacity'] / 2**30:.1f} GiB: requested {g('requested_bytes_peak')}, "
          f"active {g('active_bytes_peak')}, reserved {g('reserved_bytes_peak')}, device allocs {res['num_device_alloc']}, frees {res['num_device_free']}, "
          f"retries {res['num_alloc_retries']}, refused {refused}"
          + (f", smallest device {g('min_capacity')} ({res['retries_at_min_capacity']} retries)" if args.min_capacity else ""))
sys.stdout.flush()
if not os.environ.get("FAKE_GPU_STATS"):
    os._exit(0)
