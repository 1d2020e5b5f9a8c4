"""Puts an allocator in place, as a user does."""
import os

# Which one this process runs on; processes that it starts read it.
VARIABLE = "GRANULE_E2E_ALLOCATOR"


def current():
    return os.environ[VARIABLE]


def install(name):
    if name == "native":
        return
    import granule_torch
    import torch

    if name in ("granule", "policy:granule"):
        granule_torch.enable()  # the policy is in GRANULE_CONF
    elif name == "pluggable":
        torch.cuda.memory.change_current_allocator(granule_torch.pluggable())
    else:
        raise ValueError(f"there is no allocator '{name}'")
