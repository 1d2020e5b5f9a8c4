"""What can go wrong before PyTorch runs on Granule."""

from __future__ import annotations


class GranuleError(RuntimeError):
    """Granule could not do what was asked. The text says why and what to do."""


class CannotEnable(GranuleError):
    """Granule was not put in place; PyTorch goes on with the allocator that it had."""

    def __init__(self, reason: str, left: str = "native") -> None:
        super().__init__(f"{reason} PyTorch's {left} allocator was left in place.")


class OutOfMemory(GranuleError, MemoryError):
    """A request found no memory, after every remedy was tried. The text is Granule's report."""
