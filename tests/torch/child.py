"""Runs the scenes of a test file, with one allocator, in this process. Started by `rig.py`.

usage: child.py FILE ALLOCATOR OUT NAME...

Writes a line of JSON to OUT when a scene begins and another when it has ended, so that whoever reads it knows where
the process died, if it did.
"""
import gc
import importlib.util
import json
import os
import sys
import traceback

import torch

import allocators


def load(path):
    spec = importlib.util.spec_from_file_location(os.path.basename(path)[:-3], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tidy():
    """What the scene before left is not the next one's."""
    gc.collect()
    if torch.cuda.is_initialized() and torch.cuda.get_allocator_backend() != "pluggable":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch._C._host_emptyCache()
        for device in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(device)
            torch.cuda.reset_accumulated_memory_stats(device)


def run(scene, name, out):
    print(json.dumps({"began": name}), file=out, flush=True)
    try:
        result = {"returned": scene.body()}
        # The line must be whole or not there.
        text = json.dumps({"ended": name, **result})
    except BaseException:
        text = json.dumps({"ended": name, "failed": traceback.format_exc(limit=-12)})
    print(text, file=out, flush=True)


def main():
    path, allocator, out, *names = sys.argv[1:]
    torch.backends.cuda.enable_cudnn_sdp(False)  # the rig has no cuDNN attention
    module = load(path)
    os.environ[allocators.VARIABLE] = allocator
    with open(out, "w", encoding="utf-8") as out:
        scenes = [(name, getattr(module, name).scene) for name in names]
        if scenes[0][1].install:
            allocators.install(allocator)
        if not scenes[0][1].alone:
            torch.cuda.init()
        for name, scene in scenes:
            run(scene, name, out)
            tidy()
        print(json.dumps({"finished": True}), file=out, flush=True)


if __name__ == "__main__":
    main()
