"""Settings at run time."""

from __future__ import annotations

from . import _enable, _library


def configure(settings: str) -> None:
    """Changes settings of the allocator behind ``torch.cuda``, PyTorch's options or Granule's own.

    ``torch._C._accelerator_setAllocatorSettings`` and ``torch.cuda.memory._set_allocator_settings`` reach Granule, too,
    but PyTorch's parser refuses options that PyTorch does not have. As there, each text resets ``max_split_size_mb``,
    ``roundup_power2_divisions``, ``garbage_collection_threshold`` and ``max_non_split_rounding_mb`` first.

    Args:
        settings: such as ``"early_reuse:True"``.

    Raises:
        GranuleError: the text cannot be honoured; nothing was changed.
    """
    _library.check(_library.load().granule_configure(_enable.engine(), settings.encode()))
