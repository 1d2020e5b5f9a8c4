"""Collectives for a device that :func:`granule_torch.privateuse1.enable` made: gloo's, on copies in the host's memory.

A process group that has gloo for the CPU serves the device's tensors, too, unless the program names another backend for them.
Subgroups come from `new_group`; `split_group` is refused.
"""

from __future__ import annotations

import atexit
import threading
from datetime import timedelta
from typing import Any, Callable

import torch
from torch.distributed import ProcessGroup, Work
from torch.distributed.distributed_c10d import Backend as _Names
from torch.futures import Future

from torch._C import _distributed_c10d as c10d

# Their first argument is what they write to; of "send" it is what is read.
OPERATIONS = (
    "broadcast",
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "_allgather_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "send",
    "recv",
    "recv_anysource",
)

# What gloo has, if at all, for its own groups only: `new_group` serves where `split_group` does not.
ABSENT = (
    "supports_splitting",
    "supports_coalescing",
    "supports_shrinking",
    "supports_reconfigure",
    "supports_window",
    "_supports_time_estimate",
)


# The threads that wait for an operation or tell its end, each with what it waits for.
_waiting: dict[threading.Thread, Work] = {}


@atexit.register
def _let_them_tell() -> None:
    """Joins the threads that come back to Python: the interpreter would end them within C++, which ends the process.

    One whose operation is still pending is left where it is, so that a rank that fails does not wait for the others.
    """
    for thread, work in list(_waiting.items()):
        if work.is_completed():
            thread.join()


class Staged(c10d.Backend):
    """Gloo, for tensors that only the device can reach."""

    def __init__(self, gloo: c10d.Backend) -> None:
        super().__init__(gloo.rank(), gloo.size())
        self.gloo = gloo

    def name(self) -> str:
        return "gloo"

    # What PyTorch's C++ calls the same.
    getBackendName = name

    def set_timeout(self, timeout: timedelta) -> None:
        self.gloo.set_timeout(timeout)

    @property
    def options(self) -> Any:
        return self.gloo.options

    def barrier(self, options: Any) -> Work:
        return self.gloo.barrier(options)


def _operation(name: str) -> Callable[..., Work]:
    def run(self: Staged, *arguments: Any) -> Work:
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        first = _on_host(arguments[0], pairs)
        rest = [_on_host(argument, []) for argument in arguments[1:]]
        work = getattr(self.gloo, name)(first, *rest)
        future: Future[list[torch.Tensor]] = Future()

        def finish() -> None:
            try:
                work.wait()
                if name != "send":
                    _copy_back(pairs)
                future.set_result([tensor for tensor, _ in pairs])
            except Exception as error:
                future.set_exception(error)
            finally:
                _waiting.pop(thread)

        # Not every operation of gloo has a future, but each can be waited for.
        thread = threading.Thread(target=finish, name=f"granule-{name}", daemon=True)
        _waiting[thread] = work
        thread.start()
        return c10d._create_work_from_future(future)

    return run


for _name in OPERATIONS:
    setattr(Staged, _name, _operation(_name))


# PyTorch's own getters ask the subclass's, which are themselves, without end.
for _name in ABSENT:
    setattr(Staged, _name, False)


def _on_host(argument: Any, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    """An argument with copies in the place of the device's tensors; `pairs` gets both."""
    if isinstance(argument, torch.Tensor):
        copy = argument.cpu()
        pairs.append((argument, copy))
        return copy
    if isinstance(argument, list):
        return [_on_host(part, pairs) for part in argument]
    return argument


def _copy_back(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    with torch.no_grad():
        for tensor, copy in pairs:
            tensor.copy_(copy)


def serve(device: str) -> None:
    """Lets process groups with gloo serve `device`, whichever way a program asks for gloo."""
    register = ProcessGroup._register_backend
    kind = ProcessGroup.BackendType
    host, here = torch.device("cpu"), torch.device(device)

    def register_and_stage(group: ProcessGroup, place: torch.device, type: Any, backend: Any) -> None:
        if type != kind.GLOO or place not in (host, here):
            register(group, place, type, backend)
            return
        served = group._device_types
        # A group has one backend of a type, and must have one of its default type.
        staged = kind.GLOO
        if place == host or host not in served:
            register(group, host, kind.GLOO, backend)
            staged = kind.UNDEFINED
        if here not in served:
            register(group, here, staged, Staged(backend))

    ProcessGroup._register_backend = register_and_stage  # type: ignore[method-assign]
    _Names.default_device_backend_map.setdefault(device, _Names.GLOO)
