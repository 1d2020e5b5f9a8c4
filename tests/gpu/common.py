"""What every script of the kit shares: the allocator's modes, and how results are said."""
import json
import os
import sys
import time
import traceback
import warnings

# What runs: the name, the environment that must be set before torch is imported, and the settings that enable() gets.
# None: PyTorch's own allocator.
EXP = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
MODES = {
    "native": ({}, None),
    "native-exp": (EXP, None),
    "granule": ({}, ""),
    "granule-exp": (EXP, ""),
    "policy": ({}, "policy:granule"),
}
for _key in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "GRANULE_CONF", "GRANULE_TORCH"):
    os.environ.pop(_key, None)

# On simulated drivers kernels compute nothing, so contents are not compared; and it is not worth while to work much.
FAKE = bool(os.environ.get("KIT_RIG"))
TINY = FAKE or bool(os.environ.get("KIT_TINY"))


def install(mode):
    """Puts the mode's allocator in place; says how."""
    env, settings = MODES[mode]
    os.environ.update(env)
    import torch

    said = {"mode": mode, "torch": torch.__version__}
    if settings is None:
        return said
    import granule_torch

    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        granule_torch.enable(settings=settings or None)
    return {**said, "settings": settings, "enable_s": round(time.perf_counter() - start, 3), "warnings": [str(item.message)[:500] for item in caught][:4]}


def say(**result):
    print("KIT " + json.dumps(result, default=str), flush=True)


def deterministic():
    """Call before torch touches the device."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message=".*deterministic.*")


FIGURES = (
    "allocated_bytes.all.current", "allocated_bytes.all.peak", "reserved_bytes.all.current", "reserved_bytes.all.peak",
    "active_bytes.all.current", "active_bytes.all.peak", "requested_bytes.all.peak", "inactive_split_bytes.all.current",
    "segment.all.current", "num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams",
)
SHORT = ("allocated_bytes.all.current", "reserved_bytes.all.current", "reserved_bytes.all.peak", "segment.all.current",
         "num_alloc_retries", "num_device_alloc", "num_device_free", "inactive_split_bytes.all.current")


def figures(names=FIGURES):
    import torch

    stats = torch.cuda.memory_stats()
    return {name: int(stats.get(name, -1)) for name in names}


def segments():
    """Sizes of segments and of what is allocated in each, without addresses."""
    import torch

    return sorted((s["total_size"], s["allocated_size"], s["segment_type"], len(s["blocks"])) for s in torch.cuda.memory_snapshot())


def driver_used():
    """Bytes of the device that are taken, by the driver's word."""
    import torch

    free, total = torch.cuda.mem_get_info()
    return total - free


def fresh():
    """Between two phases: everything given back, statistics at zero."""
    import gc

    import torch

    gc.collect()
    torch.cuda.synchronize()
    if hasattr(torch._C, "_cuda_clearCublasWorkspaces"):
        torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


_turn = []


def turn():
    """Waits until this process is the only one that works on the device; called once torch is there."""
    path = os.environ.get("KIT_LOCK")
    if path and not _turn:
        import fcntl

        _turn.append(open(path, "w"))
        fcntl.flock(_turn[0], fcntl.LOCK_EX)
        if mark := os.environ.get("KIT_TURN"):
            open(mark, "w").close()


def failure(error):
    """What a result says of an error."""
    return {"failed": f"{type(error).__name__}: {str(error)[:1500]}", "where": "".join(traceback.format_exception(error))[-1500:]}


def main(body):
    """Runs it and lets nothing that fails go unsaid. A way out that is no failure stays the interpreter's: it is part of the test."""
    try:
        body()
    except BaseException as error:  # noqa: BLE001
        say(step=os.path.basename(sys.argv[0]).removesuffix(".py"), **failure(error))
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
