"""Run one workload (workloads.py) on the fake device.

  record.py WORKLOAD --mode record --out EVENTS     exact request log (pluggable allocator)
  record.py WORKLOAD --mode native --out RESULT.json [--snapshot FILE]
                                                    torch's own CUDACachingAllocator
Run it under fakegpu-run.  --mode native honours PYTORCH_CUDA_ALLOC_CONF and also
checks, with --check EVENTS, that the allocator saw the same requests.
"""
import argparse
import ctypes
import gc
import json
import os
import pickle
import sys

ap = argparse.ArgumentParser()
ap.add_argument("workload")
ap.add_argument("--mode", choices=["record", "native"], default="native")
ap.add_argument("--out")
ap.add_argument("--check", help="event log to compare the native trace with")
ap.add_argument("--snapshot", help="also dump a PyTorch memory snapshot here")
ap.add_argument("--stacks", action="store_true", help="Python frames in the snapshot")
ap.add_argument("--max-entries", type=int, default=10_000_000)
ap.add_argument("--iters", type=int, default=None)
ap.add_argument("--programs", help="the Python file that has WORKLOAD as a function, instead of workloads.py")
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()

here = os.path.dirname(os.path.abspath(__file__))
lib = os.environ.get("FAKE_GPU_LIB", os.path.join(here, "../../target/fakegpu"))
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import torch

torch.backends.cuda.enable_cudnn_sdp(False)
if os.environ.get("FAKE_CUDNN", "1") == "0":
    torch.backends.cudnn.enabled = False

rec = None
marks = []
if args.mode == "record":
    so = os.path.join(lib, "librecorder.so")
    rec = ctypes.CDLL(so)
    fn = lambda n: ctypes.cast(getattr(rec, n), ctypes.c_void_p).value
    assert rec.rec_open(args.out.encode())
    alloc = torch.cuda.memory.CUDAPluggableAllocator(so, "rec_malloc", "rec_free")
    alloc.allocator().set_record_stream_fn(fn("rec_stream"))
    alloc.allocator().set_reset_fn(fn("rec_empty_cache"))
    torch.cuda.memory.change_current_allocator(alloc)
else:
    kw = dict(max_entries=args.max_entries)
    kw.update(context="all", stacks="python") if args.stacks else kw.update(context=None)
    torch.cuda.memory._record_memory_history(**kw)


def mark(n):
    """Iteration boundary; called by the workload before iteration n."""
    if rec:
        rec.rec_mark(f"i {n}".encode())
    else:
        s = torch.cuda.memory_stats()
        marks.append([n, s["requested_bytes.all.current"], s["allocated_bytes.all.current"],
                      s["reserved_bytes.all.current"], s["num_device_alloc"]])


import random
import runpy
import workloads

random.seed(args.seed)
torch.manual_seed(args.seed)
gc.disable()  # cycles are collected at iteration boundaries only, so runs are equal
if args.programs:
    sys.path.append(os.path.dirname(os.path.abspath(args.programs)))
    w = runpy.run_path(args.programs)[args.workload]
else:
    w = workloads.WORKLOADS[args.workload]
keep = w(mark, args.iters)
if rec:
    rec.rec_close()
    sys.stdout.flush()
    os._exit(0)

s = torch.cuda.memory_stats()
keys = ["requested_bytes.all.peak", "allocated_bytes.all.peak", "active_bytes.all.peak",
        "reserved_bytes.all.peak", "inactive_split_bytes.all.peak", "num_device_alloc",
        "num_device_free", "num_alloc_retries", "num_ooms"]
if torch.cuda.get_allocator_backend() != "native":
    sys.exit("not the native allocator")
res = {"workload": args.workload, "torch": torch.__version__,
       "conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
       "capacity": torch.cuda.get_device_properties(0).total_memory}
res.update({k.replace(".all.", "_").replace(".", "_"): s.get(k) for k in keys})
core = ctypes.CDLL("libcuda.so.1")
core.fakegpu_peak.restype = ctypes.c_size_t
core.fakegpu_counter_named.restype = ctypes.c_uint64
res["driver_peak_held"] = core.fakegpu_peak(0)
for name in ("cudaMalloc", "cudaFree", "cuMemCreate", "cuMemMap", "cuMemUnmap"):
    res[name] = core.fakegpu_counter_named(name.encode())
res["marks"] = marks  # [n, requested, allocated, reserved, device allocs] at each boundary
trace = torch.cuda.memory._snapshot()["device_traces"][0]
res["trace_entries"] = len(trace)



def canonical(events):
    """Frees with no request between them, sorted: containers hashed by host address
    (autocast's weight cache) drop their tensors in an order that varies from run to
    run, and no allocator's state after such a burst depends on it."""
    burst = []
    for e in events:
        if e[0] == "f":
            burst.append(e)
        else:
            yield from sorted(burst, key=lambda x: int(x[1]))
            burst = []
            yield e
    yield from sorted(burst, key=lambda x: int(x[1]))


def native_events():
    ids, streams, nid = {}, {0: "0"}, 0
    for e in trace:
        if e["action"] == "alloc":
            ids[e["addr"]] = str(nid)
            yield ["a", str(nid), str(e["size"]), streams.setdefault(e["stream"], str(len(streams)))]
            nid += 1
        elif e["action"] == "free_requested":
            yield ["f", ids.pop(e["addr"])]


if args.check:
    want = list(canonical(l.split() for l in open(args.check) if l[0] in "af"))
    got = list(canonical(native_events()))
    bad = next((i for i, (x, y) in enumerate(zip(want, got)) if x != y), None)
    if bad is None and len(want) != len(got):
        bad = min(len(want), len(got))
    res["same_requests_as_recorded"] = bad is None
    if bad is not None:
        res["first_difference"] = [bad, want[bad:bad + 1], got[bad:bad + 1], len(want), len(got)]
        print("DIFFERENT from the record:", res["first_difference"], file=sys.stderr)
if args.out:
    json.dump(res, open(args.out, "w"))
if args.snapshot:
    # what torch.cuda.memory._dump_snapshot does, with install directories cut from the
    # file names of the frames
    snap = torch.cuda.memory._snapshot()
    cuts = [os.path.join(os.path.dirname(torch.__path__[0]), ""), os.path.join(os.path.dirname(os.__file__), ""),
            os.path.join(here, "")]
    seen = set()

    def scrub(x):
        if isinstance(x, dict):
            if id(x) in seen:
                return
            seen.add(id(x))
            f = x.get("filename")
            if isinstance(f, str):
                for c in cuts:
                    f = f.replace(c, "")
                x["filename"] = f
            for v in x.values():
                scrub(v)
        elif isinstance(x, (list, tuple)):
            if id(x) not in seen:
                seen.add(id(x))
                for v in x:
                    scrub(v)

    scrub(snap)
    with open(args.snapshot, "wb") as f:
        pickle.dump(snap, f)
print(json.dumps({k: v for k, v in res.items() if k != "marks"}))
sys.stdout.flush()
if not os.environ.get("FAKE_GPU_STATS"):
    os._exit(0)  # skip the slow teardown; the statistics file needs a normal exit
