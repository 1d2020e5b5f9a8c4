"""The sleep mode backend for vLLM. It is a subclass of vLLM's, so vLLM imports this module, once it is selected."""

from __future__ import annotations

from typing import Any

import vllm.device_allocator as device_allocator
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend
from vllm.platforms import current_platform

# What no level gives up: there is nobody to make it again.
_KEPT = ("runtime", "cudagraph")


class GranuleBackend(SleepModeBackend):  # type: ignore[misc] # without vLLM there, its class is unknown
    """Suspends and resumes what the worker's allocator holds: Granule's regions, or vLLM's own where Granule could not be put
    in place (the log said why)."""

    def suspend(self, level: int = 1) -> None:
        """Gives memory back. Level 1 keeps the weights' contents in the host's memory or files, level 2 gives them up.

        Raises:
            ValueError: there is no such level.
        """
        if level not in (1, 2):
            raise ValueError(f"level is {level!r}; 1 keeps the weights, 2 gives them up")
        allocator = device_allocator.get_mem_allocator_instance()
        try:
            allocator.sleep(offload_tags=("weights", *_KEPT) if level == 1 else _KEPT)
        except BaseException:
            self._settle(allocator)
            raise
        self._state = "SUSPENDED"

    def resume(self, tags: list[str] | None = None) -> None:
        """Wakes everything, or these tags and all that cannot be deferred. Can be called again after it failed."""
        allocator = device_allocator.get_mem_allocator_instance()
        self._state = "RESUMING"
        try:
            allocator.wake_up(tags)
        finally:
            self._settle(allocator)

    def discard(self, tags: tuple[str, ...]) -> None:
        """Gives tags up without saving them."""
        allocator = device_allocator.get_mem_allocator_instance()
        try:
            allocator.discard(tags)
        finally:
            self._settle(allocator)

    def _settle(self, allocator: Any) -> None:
        """RUNNING means that everything is awake; vLLM's own backend says it after a wake of some tags, too."""
        self._state = "SUSPENDED" if _sleeps(allocator) else "RUNNING"

    @classmethod
    def is_supported(cls) -> bool:
        """On CUDA and ROCm."""
        return bool(current_platform.is_cuda_alike())

    @classmethod
    def preserves_communicators(cls) -> bool:
        """Yes: their memory is not in the regions."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """Nothing takes them away, and nobody has shown that they last; a program that believes this does too much, not too
        little."""
        return False

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        """Not shown, as above."""
        return False

    @classmethod
    def supports_durable_storage(cls) -> bool:
        """No: a backup in files is this process's alone, and goes with it."""
        return False


def _sleeps(allocator: Any) -> bool:
    if hasattr(allocator, "tags_asleep"):
        return bool(allocator.tags_asleep())
    return any(data.is_asleep for data in allocator.pointer_to_data.values())
