"""Processes that train one model together, over gloo: what each of them asked for at most. A script of its own;
`granule estimate --devices 2 -- python -m torch.distributed.run --nproc-per-node 2 estimate_ddp.py` runs it."""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]).cuda()
model = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
# In one piece, since both write at once.
sys.stdout.write(f"rank: {rank} {torch.cuda.memory_stats()['requested_bytes.all.peak']}\n")
