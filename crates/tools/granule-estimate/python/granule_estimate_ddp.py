"""Lets ``DistributedDataParallel`` over gloo begin.

Its processes compare the shapes of their parameters, and agree on buckets, by numbers that go through the device and are
read back. A device that computes nothing keeps no contents either; it does so while these numbers are under way.
"""

import ctypes
import functools

import torch


def watch_for_ddp() -> None:
    reducer = getattr(torch.distributed, "Reducer", None)
    module = getattr(torch.nn.parallel, "distributed", None)
    for owner, name in ((module, "_verify_param_shape_across_processes"), (reducer, "_rebuild_buckets")):
        # A release that is built otherwise keeps its own way.
        if hasattr(owner, name):
            setattr(owner, name, remembering(getattr(owner, name)))


def remembering(function):
    driver = ctypes.CDLL("libcuda.so.1")

    @functools.wraps(function)
    def call(*args, **kwargs):
        driver.fakegpu_remember(1)
        try:
            return function(*args, **kwargs)
        finally:
            driver.fakegpu_remember(0)

    return call
