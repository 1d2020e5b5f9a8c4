"""GRANULE_TORCH=1: PyTorch calls this at the end of ``import torch`` (entry point group ``torch.backends``).

A module of its own, so that programs which do not set the variable pay for nothing else.
"""

from __future__ import annotations

import os


def autoload() -> None:
    """Enables Granule if GRANULE_TORCH asks for it. Where that is not possible, warns: importing PyTorch never fails."""
    if os.environ.get("GRANULE_TORCH", "0") in ("", "0"):
        return
    from granule_torch import GranuleError, enable

    try:
        enable()
    except GranuleError as error:
        import warnings

        warnings.warn(f"GRANULE_TORCH is set, but: {error}", RuntimeWarning, stacklevel=2)
        return
    if os.environ.get("GRANULE_TORCH_MEMORY_SAVER", "0") not in ("", "0"):
        from granule_torch.adapters import torch_memory_saver

        torch_memory_saver.autoload()
