"""SGLang's memory saver on Granule's regions (entry point group ``sglang.srt.plugins``).

    GRANULE_TORCH_MEMORY_SAVER=1 python -m sglang.launch_server --model MODEL --enable-memory-saver

SGLang calls :func:`register` early in each of its processes. Without the variable nothing happens there. No file of SGLang changes, and
torch_memory_saver need not be installed.
"""

from __future__ import annotations

import logging
import os
from contextlib import AbstractContextManager
from typing import Any

from .. import _enable
from .._errors import GranuleError
from . import _releases
from . import torch_memory_saver as tms

TESTED = "0.5.23"

_HOOKED = "sglang.srt.utils.torch_memory_saver_adapter.TorchMemorySaverAdapter"
_log = logging.getLogger("sglang.granule_torch")


def register() -> None:
    """Has SGLang pause and resume through Granule, where GRANULE_TORCH_MEMORY_SAVER is set. Where that is not possible, says why in the
    log, and SGLang goes on with torch_memory_saver.
    """
    if os.environ.get(tms.VARIABLE, "0") in ("", "0"):
        return
    try:
        hooks = _releases.imported("sglang.srt.plugins.hook_registry", "sglang", "0", ("HookRegistry", "HookType"))
        _check(_releases.imported("sglang.srt.utils.torch_memory_saver_adapter", "sglang", "0", ("TorchMemorySaverAdapter",)))
        if not _enable.is_enabled():
            _enable.enable()
    except GranuleError as why:
        _log.warning("%s is set, but: %s SGLang goes on with torch_memory_saver.", tms.VARIABLE, why)
        return
    hooks.HookRegistry.register(f"{_HOOKED}.create", _create, hooks.HookType.AROUND)


def _check(module: Any) -> None:
    """All questions come before all changes: the adapter has the calls that Granule's answers."""
    asked = {name for name in vars(module.TorchMemorySaverAdapter) if not name.startswith("_")}
    answered = {"create", "check_validity", *_answers()}
    if asked - answered:
        raise GranuleError(
            f"granule_torch was made for SGLang {TESTED}, and in this one TorchMemorySaverAdapter has "
            f"{', '.join(sorted(asked - answered))}."
        )


def _create(original: Any, enable: bool) -> Any:
    """In the place of ``TorchMemorySaverAdapter.create``."""
    if not enable:
        return original(enable)
    module = _releases.imported("sglang.srt.utils.torch_memory_saver_adapter", "sglang", "0")
    base = module.TorchMemorySaverAdapter
    return type("GranuleMemorySaverAdapter", (base,), _answers())()


def _answers() -> dict[str, Any]:
    """The methods of SGLang's adapter."""

    def configure_subprocess(self: Any) -> AbstractContextManager[None]:
        return tms.configure_subprocess()

    def region(self: Any, tag: str, enable_cpu_backup: bool = False) -> AbstractContextManager[None]:
        return tms.torch_memory_saver.region(tag=tag, enable_cpu_backup=enable_cpu_backup)

    def cuda_graph(self: Any, **options: Any) -> AbstractContextManager[None]:
        return tms.torch_memory_saver.cuda_graph(**options)

    def disable(self: Any) -> AbstractContextManager[None]:
        return tms.torch_memory_saver.disable()

    def pause(self: Any, tag: str) -> None:
        tms.torch_memory_saver.pause(tag=tag)

    def resume(self: Any, tag: str) -> None:
        tms.torch_memory_saver.resume(tag=tag)

    methods = (configure_subprocess, region, cuda_graph, disable, pause, resume)
    return {**{method.__name__: method for method in methods}, "enabled": property(lambda self: True)}
