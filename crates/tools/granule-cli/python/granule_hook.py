"""What the granule command adds to a program that imports PyTorch; the program itself stays as it is.

Its folder is in PYTHONPATH. PyTorch (2.5 and later) looks for the entry points that are named beside this file, and calls `autoload`
at the end of `import torch`. GRANULE_HOOK names the modules of this folder that are to start then.
"""

import importlib
import os
import sys


def say(text):
    print(f"granule: {text}", file=sys.stderr, flush=True)


def warn(text):
    """Says what went wrong. A program goes on without what was to be added to it."""
    say(f"warning: {text}")


def autoload():
    named = os.environ.get("GRANULE_HOOK", "granule_record" if "GRANULE_RECORD" in os.environ else "")
    for name in filter(None, named.split(",")):
        try:
            importlib.import_module(name).start(sys.modules["torch"])
        except Exception as error:
            warn(f"{name} did not start: {type(error).__name__}: {error}")
