"""A program of the rig as a script that knows nothing of recording: estimate_workload.py NAME [ITERATIONS]."""
import gc
import os
import random
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../nogpu-torch"))
import workloads  # noqa: E402

random.seed(0)
torch.manual_seed(0)
gc.disable()  # The recorded programs collect cycles at iterations' boundaries only.
kept = workloads.WORKLOADS[sys.argv[1]](lambda _: None, int(sys.argv[2]) if len(sys.argv) > 2 else None)
stats = torch.cuda.memory_stats()
print(*(stats[f"{what}_bytes.all.peak"] for what in ("requested", "reserved")))
