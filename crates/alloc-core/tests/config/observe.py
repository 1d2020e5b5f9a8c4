"""Asks a real PyTorch what it makes of every string in `cases.json` and writes `pytorch-2.15.json`.

Run it with the python of an environment that holds a CUDA build of PyTorch and a C++ compiler. No device is
used, but the CUDA libraries (or stand-ins) must load. Every case runs in a process of its own, because PyTorch
never forgets an option.
"""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

import torch

HERE = pathlib.Path(__file__).parent
ROOT = pathlib.Path(torch.__file__).parent
TOTAL = 1 << 40  # device memory against which reserves are resolved

PROBE = r"""
#include <c10/cuda/CUDAAllocatorConfig.h>
#include <sstream>
#include <cstring>
#include <iomanip>
using A = c10::CachingAllocator::AcceleratorAllocatorConfig;
using C = c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig;
extern "C" void state(const char* classes, size_t total, char* out, size_t room) {
  std::ostringstream o;
  o << std::setprecision(17) << std::boolalpha;
  o << "{\"large_segment_size\":" << A::large_segment_size()
    << ",\"max_split_size\":" << A::max_split_size()
    << ",\"max_non_split_rounding\":" << A::max_non_split_rounding_size()
    << ",\"garbage_collection_threshold\":" << A::garbage_collection_threshold()
    << ",\"roundup_power2_divisions\":[";
  bool first = true;
  for (size_t d : A::roundup_power2_divisions()) { o << (first ? "" : ",") << d; first = false; }
  o << "],\"expandable_segments\":" << A::use_expandable_segments()
    << ",\"release_lock_on_malloc\":" << C::release_lock_on_cudamalloc()
    << ",\"per_process_memory_fraction\":" << C::per_process_memory_fraction()
    << ",\"throw_on_oom\":" << C::throw_on_cudamalloc_oom()
    << ",\"graph_capture_record_stream_reuse\":" << C::graph_capture_record_stream_reuse()
    << ",\"pinned_use_host_register\":" << C::pinned_use_cuda_host_register()
    << ",\"pinned_num_register_threads\":" << C::pinned_num_register_threads()
    << ",\"pinned_reserve_segment_size_mb\":" << C::pinned_reserve_segment_size_mb()
    << ",\"pinned_use_background_threads\":" << A::pinned_use_background_threads()
    << ",\"pinned_max_round_threshold\":" << A::pinned_max_round_threshold()
    << ",\"pinned_max_cached_size\":" << A::pinned_max_cached_size()
    << ",\"pinned_free_catch_all\":" << C::pinned_free_catch_all()
    << ",\"reserve\":{";
  std::istringstream names(classes);
  std::string name;
  first = true;
  while (std::getline(names, name, ' ')) {
    if (name == "-") name = "";
    auto d = C::expandable_segments_reserve_decision(name, total);
    if (!d.reserve_bytes) continue;
    o << (first ? "" : ",") << "\"" << name << "\":[" << *d.reserve_bytes << "," << d.class_known << "]";
    first = false;
  }
  o << "}}";
  std::strncpy(out, o.str().c_str(), room - 1);
}
"""


def build():
    folder = tempfile.mkdtemp()
    source = pathlib.Path(folder, "probe.cpp")
    source.write_text(PROBE)
    library = pathlib.Path(folder, "probe.so")
    # The one CUDA header behind the settings' header is not needed, so nor is a CUDA toolkit.
    shadow = pathlib.Path(folder, "c10", "cuda")
    shadow.mkdir(parents=True)
    (shadow / "CUDAException.h").write_text("#pragma once\n")
    subprocess.run(
        ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", "-Wno-deprecated-declarations", str(source), "-o", str(library),
         f"-I{folder}", f"-I{ROOT}/include", f"-L{ROOT}/lib", "-lc10", "-lc10_cuda", f"-Wl,-rpath,{ROOT}/lib"],
        check=True, env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"},
    )
    return ctypes.CDLL(str(library))


def observe(probe, inputs):
    error = None
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for text in inputs:
            try:
                torch._C._accelerator_setAllocatorSettings(text)
            except Exception as e:
                message = str(e).split("please report a bug to PyTorch. ")[-1].split("\nException raised")[0]
                error = {"class": type(e).__name__, "message": message}
    room = 1 << 16
    out = ctypes.create_string_buffer(room)
    probe.state(b"- a b A", ctypes.c_size_t(TOTAL), out, ctypes.c_size_t(room))
    result = {"inputs": inputs}
    if error:
        result["error"] = error
    else:
        result["settings"] = json.loads(out.value)
    said = [str(w.message).split(" (Triggered internally")[0] for w in seen]
    if said:
        result["warnings"] = said
    return result


def main():
    probe = build()
    results = []
    for inputs in json.loads((HERE / "cases.json").read_text()):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            with os.fdopen(write, "w") as f:
                json.dump(observe(probe, inputs), f)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as f:
            text = f.read()
        _, status = os.waitpid(child, 0)
        results.append(json.loads(text) if text else {"inputs": inputs, "died": status})
    version = re.match(r"[\d.]+", torch.__version__).group()
    lines = ",\n".join(json.dumps(r) for r in results)
    (HERE / "pytorch-2.15.json").write_text(f'{{"torch": "{version}", "cases": [\n{lines}\n]}}\n')
    print(f"{len(results)} cases, torch {version}", file=sys.stderr)


main()
