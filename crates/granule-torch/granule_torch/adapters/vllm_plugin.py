"""``--sleep-mode-backend granule``: vLLM calls :func:`register` in each of its processes (entry point group
``vllm.general_plugins``).

The backend's name says when memory sleeps. Who allocates it is another matter: a worker asks
``vllm.device_allocator.cumem.CuMemAllocator``. So where a worker's configuration selects the backend, Granule becomes the
process's allocator before the worker touches the device, and :class:`granule_torch.adapters.vllm.CuMemAllocator` takes that
class's place. No file of vLLM changes, and other configurations see nothing of it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
from typing import Any

from .. import _enable
from .._errors import GranuleError
from .vllm import CuMemAllocator, backup_of_environment

NAME = "granule"
TESTED = "0.33.0"

# A child of vLLM's logger, so that its handlers and levels apply.
_log = logging.getLogger("vllm.plugins.granule_torch")


class DoesNotFit(GranuleError):
    """This vLLM's sleep mode is not the one that this module knows."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"granule_torch's sleep mode backend was made for vLLM {TESTED}, and in this vLLM {_version()} {found}."
        )


def register() -> None:
    """Makes the backend known. Can be called any number of times; where this vLLM does not fit, warns and changes nothing."""
    try:
        _register()
    except GranuleError as why:
        _log.warning("%s vLLM goes on as without granule_torch; --sleep-mode-backend %s is not there.", why, NAME)
    except Exception:
        # vLLM does not catch what a plugin raises, and most programs that come by here never select the backend.
        _log.exception("granule_torch's sleep mode backend could not be registered; vLLM goes on without it.")


def _register() -> None:
    factory = _named("vllm.device_allocator.sleep_mode_backend", "SleepModeBackendFactory")
    base = _named("vllm.v1.worker.worker_base", "WorkerBase")
    # All questions come before all changes.
    _check_parameters(factory.register_backend, {"name", "module_path", "class_name"})
    _check_parameters(base.__init__, {"vllm_config"})
    if getattr(base.__init__, "prepares_granule", False):
        return
    backend = f"{__package__}.vllm_backend"
    try:
        factory.register_backend(NAME, backend, "GranuleBackend")
    except ValueError:
        # Left from an earlier call in this process, or somebody else's.
        if factory.get_backend_class(NAME).__module__ != backend:
            raise DoesNotFit(f"another plugin has registered a backend of the name {NAME!r}") from None
    base.__init__ = _preparing(base.__init__)


def _preparing(init: Any) -> Any:
    """The constructor of all workers: their first moment at which the configuration is known, before the device is used."""

    @functools.wraps(init)
    def prepared(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind_partial(self, *args, **kwargs)
        prepare(bound.arguments.get("vllm_config"))
        init(self, *args, **kwargs)

    signature = inspect.signature(init)
    prepared.prepares_granule = True  # type: ignore[attr-defined]
    return prepared


def prepare(vllm_config: Any) -> None:
    """Puts Granule in place if a worker's configuration selects it. Where that is not possible, says why in the log.

    Raises:
        ValueError: GRANULE_VLLM_BACKUP names no backup. Nothing has begun yet, so it is best mended now.
    """
    model = getattr(vllm_config, "model_config", None)
    if not getattr(model, "enable_sleep_mode", False) or getattr(model, "sleep_mode_backend", None) != NAME:
        return
    backup_of_environment()
    try:
        install()
    except GranuleError as why:
        _log.error("Sleep mode works on vLLM's own allocator, not on Granule: %s", why)
    else:
        _log.info("Sleep mode works on Granule (backup of kept contents: %s).", CuMemAllocator.get_instance().backup)
        if getattr(model, "sleep_mode_offload_cudagraph", False) and not getattr(
            vllm_config, "use_cumem_cudagraph_pool", True
        ):
            _log.warning(
                "sleep_mode_offload_cudagraph has no effect: this vLLM puts graphs into memory that sleeps with its own backend "
                "only. They stay on the device."
            )


def install() -> None:
    """Makes Granule this process's allocator, and :class:`CuMemAllocator` the one that vLLM's sleep mode asks.

    Raises:
        GranuleError: that is not possible; all is as it was.
    """
    package = _module("vllm.device_allocator")
    cumem = _module("vllm.device_allocator.cumem")
    theirs = _named("vllm.device_allocator.cumem", "CuMemAllocator")
    if theirs is CuMemAllocator:
        return
    _check_shape(theirs)
    deferrable = _named("vllm.device_allocator", "DEFERRABLE_TAGS")
    if tuple(deferrable) != CuMemAllocator.deferrable_tags:
        raise DoesNotFit(f"a partial wake may leave {tuple(deferrable)} asleep, not {CuMemAllocator.deferrable_tags}")
    if getattr(theirs, "instance", None) is not None and theirs.instance.get_current_usage():
        raise GranuleError("vLLM's own allocator holds memory in this process: an engine without this backend runs here.")
    # The one place where all of vLLM's modules look, also those that have imported get_mem_allocator_instance by name.
    cumem.CuMemAllocator = CuMemAllocator
    try:
        if package.get_mem_allocator_instance() is not CuMemAllocator.get_instance():
            raise DoesNotFit(f"{package.__name__} takes its allocator from elsewhere than {cumem.__name__}")
        _enable.enable()
    except BaseException:
        cumem.CuMemAllocator = theirs
        raise


def _check_shape(theirs: Any) -> None:
    """Fails unless all that can be called of vLLM's class is there in ours, with the same parameters."""
    for name, function in vars(theirs).items():
        if name.startswith("_") or not callable(getattr(theirs, name)):
            continue
        ours = getattr(CuMemAllocator, name, None)
        if ours is None:
            raise DoesNotFit(f"CuMemAllocator has {name}()")
        _check_parameters(ours, set(inspect.signature(getattr(theirs, name)).parameters), f"CuMemAllocator.{name}() has")


def _check_parameters(function: Any, wanted: set[str], found: str = "") -> None:
    there = set(inspect.signature(function).parameters)
    if missing := sorted(wanted - there):
        raise DoesNotFit(
            f"{found} the parameters {missing}" if found else f"{function.__qualname__}() has no parameters {missing}"
        )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise DoesNotFit(f"{name} cannot be imported ({error})") from error


def _named(module: str, name: str) -> Any:
    found = getattr(_module(module), name, None)
    if found is None:
        raise DoesNotFit(f"{module} has no {name}")
    return found


def _version() -> str:
    return str(getattr(sys.modules.get("vllm"), "__version__", "of an unknown release"))
