"""The tables of docs/parity.md name everything that the installed PyTorch has."""
import re
from pathlib import Path

import torch
from scene import release

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10; pytest brings this one.
    import tomli as tomllib

TABLES = Path(__file__).parent.parent / "parity_torch.toml"
INCLUDE = Path(torch.__file__).parent / "include/c10"
# Private functions that are no offer to users: helpers of the ones that are.
HELPERS = {
    "_host_allocator", "_recurse_add_to_result", "_record_memory_history_legacy", "_record_memory_history_impl",
    "_make_uvm_allocator", "_flatten_stats", "_augment_memory_snapshot_stack_traces", "_extract_fx_frames",
    # Only in 2.11.
    "_free_mutex",
}


def rows(table):
    tables = tomllib.loads(TABLES.read_text())["table"]
    names = [row["name"] for found in tables if found["name"] == table for row in found["rows"]]
    assert len(names) == len(set(names)) > 0
    return set(names)


def functions(module):
    """Public names, and private functions defined in the module itself."""
    private = {
        name for name, value in vars(module).items()
        if name.startswith("_") and not name.startswith("__") and callable(value)
        and getattr(value, "__module__", "") == module.__name__ and not isinstance(value, type)
    }
    return set(module.__all__) | (private - HELPERS)


def names_exactly(table, found):
    """Whether the table has what was found, and nothing else. It is that of the pinned release: older ones have less."""
    return rows(table) == found if release() >= (2, 15) else rows(table) >= found


def virtuals(header, name):
    """The virtual functions that a class declares, destructors aside."""
    text = (INCLUDE / header).read_text()
    body = text[re.search(rf"(class|struct)(\s+\w+)?\s+{name}\b[^;{{]*{{", text).end():]
    body = body[: body.index("\n};")]
    body = re.sub(r"//[^\n]*", "", body)
    return set(re.findall(r"virtual\s[^;{]*?(\w+)\s*\(", body)) - {name}


def test_every_virtual_function_is_in_the_table():
    found = virtuals("core/Allocator.h", "Allocator") | virtuals("core/CachingDeviceAllocator.h", "DeviceAllocator")
    found |= virtuals("cuda/CUDACachingAllocator.h", "CUDAAllocator")
    assert len(found) > 40 and {"raw_delete", "getCheckpointState", "getDeviceStats"} < found
    assert names_exactly("Virtual functions of CUDAAllocator", found)


def test_every_function_of_torch_cuda_memory_is_in_the_table():
    assert names_exactly("torch.cuda.memory", functions(torch.cuda.memory))


def test_every_function_of_torch_accelerator_is_in_the_table():
    assert names_exactly("torch.accelerator.memory", functions(torch.accelerator.memory))
