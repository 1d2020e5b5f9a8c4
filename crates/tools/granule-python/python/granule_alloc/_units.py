"""Figures of answers, with their units. They are numbers: only how they are shown differs."""

from __future__ import annotations

from typing import Any

#: Members of answers that are bytes, whatever the object. Others keep plain numbers.
BYTES = frozenset(
    "active_bytes_peak allocated allocated_bytes_peak block_size bytes capacity created_bytes device_free "
    "device_total driver_peak_held free held_open_free largest_anywhere largest_fit largest_free live live_at_end "
    "live_requested_bytes_peak max_load min_capacity other_free peak_live peak_requested peak_reserved "
    "peak_waiting recorded replayed requested requested_bytes_peak reserved reserved_at_end reserved_before "
    "reserved_bytes_peak reserved_peak resident_bytes roomy_capacity rounding shortfall size usable usable_free "
    "usable_largest waiting would_free".split()
)
#: And those that are nanoseconds.
NANOSECONDS = frozenset(["modelled_driver_ns", "waited_ns"])


class _Figure(int):
    # Whoever prints or writes it gets the number, as of any int.
    __str__ = int.__repr__


class Bytes(_Figure):
    """A number of bytes, shown as people read it: `4.24 GiB`."""

    kib = property(lambda self: self / 2**10)
    mib = property(lambda self: self / 2**20)
    gib = property(lambda self: self / 2**30)

    def __repr__(self) -> str:
        return size(self)


class Nanoseconds(_Figure):
    """A duration, shown as people read it: `18.7 ms`."""

    ms = property(lambda self: self / 1e6)
    seconds = property(lambda self: self / 1e9)

    def __repr__(self) -> str:
        for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
            if self >= unit:
                return f"{self / unit:.3g} {name}"
        return f"{int(self)} ns"


def size(count: int) -> str:
    """Bytes as people read them."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{int(count)} B"


def measured(name: str, value: Any) -> Any:
    """A member's value with its unit, where it has one."""
    if type(value) is not int:
        return value
    return Bytes(value) if name in BYTES else Nanoseconds(value) if name in NANOSECONDS else value
