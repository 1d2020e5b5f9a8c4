"""Inside the program that `granule estimate` runs: records what it asks of PyTorch's allocator.

PyTorch calls `start` at the end of ``import torch`` (entry point group ``torch.backends``), so the program needs no change.
"""

import atexit
import ctypes
import json
import os
import sys
import weakref

import torch
from granule_estimate_ddp import watch_for_ddp
from granule_estimate_generate import watch_for_transformers
from torch.optim.optimizer import register_optimizer_step_post_hook

FOLDER = "GRANULE_ESTIMATE_FOLDER"
WATCHER = "GRANULE_ESTIMATE_WATCHER"
TORCH = "GRANULE_ESTIMATE_TORCH"
ITERATIONS = "GRANULE_ESTIMATE_ITERATIONS"


def start() -> None:
    """Begins to record. What stands in the way is said on standard error; importing PyTorch does not fail."""
    if FOLDER not in os.environ:
        return
    found, expected = str(torch.__version__), os.environ[TORCH]
    if found != expected:
        say(f"{sys.executable} has torch {found}, and the simulated drivers were built for {expected}: nothing is recorded "
            "here. Name this Python with --python.")
        return
    watcher = ctypes.CDLL(os.environ[WATCHER])
    about = {"workload": program(), "source": "granule estimate", "torch": found, "pools": True}
    watcher.granule_watcher_start(os.environ[FOLDER].encode(), json.dumps(about).encode())
    atexit.register(watcher.granule_watcher_stop)
    # The simulated cuDNN computes no attention; flash and memory-efficient attention are PyTorch's own.
    torch.backends.cuda.enable_cudnn_sdp(False)
    watch_for_transformers()
    watch_for_ddp()
    Iterations(watcher, int(os.environ.get(ITERATIONS, "0")))


def program() -> str:
    """What the trace is called: the script or module without its folder."""
    name = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python"
    return name.removesuffix(".py")


def say(text: str) -> None:
    print(f"granule: {text}", file=sys.stderr, flush=True)


class Iterations:
    """Marks where iterations begin: behind each step of the first optimizer, or at ``torch.cuda.nvtx.mark("iteration")``.

    Of several optimizers only the one that stepped first counts, until it is gone.
    """

    def __init__(self, watcher: ctypes.CDLL, limit: int) -> None:
        self.watcher, self.limit = watcher, limit
        self.begun = 0
        self.optimizer = lambda: None
        self.by_hand = False
        register_optimizer_step_post_hook(self.stepped)
        self.nvtx_mark = torch.cuda.nvtx.mark
        torch.cuda.nvtx.mark = self.marked

    def stepped(self, optimizer, _args, _kwargs) -> None:
        if self.by_hand:
            return
        if self.optimizer() is None:
            self.optimizer = weakref.ref(optimizer)
        if self.optimizer() is optimizer:
            self.begun += 1
            self.begin(self.begun)

    def marked(self, message) -> None:
        self.nvtx_mark(message)
        if message == "iteration":
            if not self.by_hand:
                self.by_hand, self.begun = True, 0
            self.begin(self.begun)
            self.begun += 1

    def begin(self, number: int) -> None:
        if self.limit and number >= self.limit:
            self.watcher.granule_watcher_stop()
            say(f"stopped after {self.limit} iterations, as --max-iterations says")
            # Through the program's own `finally` and `with`, as if it had come to its end.
            raise SystemExit(0)
        self.watcher.granule_watcher_mark(ctypes.c_uint64(number))
