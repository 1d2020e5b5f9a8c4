"""Lets ``generate`` of transformers end at the length it was given.

It asks the device whether every sequence is finished, and a device that computes nothing never says so. How long the
sequences are is known without the device.
"""

import functools
import importlib.machinery
import sys

MODULE = "transformers.generation.utils"


def watch_for_transformers() -> None:
    if MODULE in sys.modules:
        end_at_length(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, Finder())


class Finder:
    """Changes the module once, when the program imports it."""

    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                end_at_length(module)

            spec.loader.exec_module = exec_module
        return spec


def end_at_length(module) -> None:
    criterion = getattr(module, "MaxLengthCriteria", None)
    unfinished = getattr(getattr(module, "GenerationMixin", None), "_has_unfinished_sequences", None)
    if criterion is None or unfinished is None:
        return  # A release that is built otherwise keeps its own way.
    asked, reached = criterion.__call__, []

    @functools.wraps(asked)
    def call(self, input_ids, scores, **kwargs):
        reached[:] = [True] * (input_ids.shape[1] >= self.max_length)
        return asked(self, input_ids, scores, **kwargs)

    @functools.wraps(unfinished)
    def has_unfinished_sequences(self, *args, **kwargs):
        if reached:
            reached.clear()
            return False
        return unfinished(self, *args, **kwargs)

    criterion.__call__ = call
    module.GenerationMixin._has_unfinished_sequences = has_unfinished_sequences
