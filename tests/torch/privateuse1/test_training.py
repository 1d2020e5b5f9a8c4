"""Training as on other accelerators: mixed precision, and several processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

RANKS = """
import os, subprocess, sys, tempfile
from datetime import timedelta
if "RANK" not in os.environ:
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(rank), "STORE": folder + "/store"})
            for rank in range(2)
        ]
        sys.exit(max(process.wait(200) for process in ranks))

import torch
import torch.distributed as dist
import granule_torch.privateuse1
granule_torch.privateuse1.enable("openreg")
rank = int(os.environ["RANK"])
dist.init_process_group(**ASKED, store=dist.FileStore(os.environ["STORE"], 2), rank=rank, world_size=2)
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    rows = torch.randn(4, 8, device="granule")
    weights = torch.randn(8, 8, device="granule", requires_grad=True)
    with torch.autocast("granule", dtype=dtype):
        product = rows @ weights
        assert product.dtype == dtype and product.device.type == "granule"
        assert product.exp().dtype == torch.float32
        assert torch.cat([product, rows[:4]]).dtype == torch.float32
        with torch.autocast("granule", enabled=False):
            assert (rows @ weights).dtype == torch.float32
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
            torch.nn.functional.binary_cross_entropy(torch.rand(3, device="granule"), torch.rand(3, device="granule"))
    product.float().sum().backward()
    assert weights.grad is not None and weights.grad.dtype == torch.float32
    wanted = (rows.cpu().to(dtype) @ weights.detach().cpu().to(dtype)).float()
    assert torch.allclose(product.detach().cpu().float(), wanted, atol=1e-2)
    assert (rows @ weights).dtype == torch.float32


def test_autocast_refuses_what_it_cannot_use() -> None:
    with pytest.warns(UserWarning, match="only supports dtypes of torch.float16, torch.bfloat16"):
        with torch.autocast("granule", dtype=torch.float64):
            assert not torch.is_autocast_enabled("granule")


@pytest.mark.parametrize("scale, overflows", [(1024.0, False), (65536.0, True)])
def test_scaled_gradients(scale: float, overflows: bool) -> None:
    model = torch.nn.Linear(8, 2).to("granule")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("granule", init_scale=scale)
    before = model.weight.detach().cpu().clone()
    with torch.autocast("granule", dtype=torch.float16):
        loss = model(torch.ones(3, 8, device="granule")).float().sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    # Gradients are 3. Times 65536 that is more than 16 bits can hold, so the step is left out and the scale halved.
    assert torch.allclose(model.weight.detach().cpu(), before if overflows else before - 0.3, atol=1e-3)
    assert scaler.get_scale() == (scale / 2 if overflows else scale)


@pytest.mark.parametrize(
    "asked",
    ["backend='gloo'", "backend='cpu:gloo,granule:gloo'", "backend='granule:gloo,cpu:gloo'", "", "device_id=0"],
)
def test_collectives_over_gloo(program: Callable[..., str], asked: str) -> None:
    program(
        f"ASKED = dict({asked})\n"
        + RANKS
        + """
device = lambda *values: torch.tensor(values, dtype=torch.float32, device="granule")
mine = device(rank, 1.0)
dist.all_reduce(mine)
assert mine.tolist() == [1, 2] and mine.device.type == "granule"
later = device(rank)
work = dist.all_reduce(later, op=dist.ReduceOp.MAX, async_op=True)
work.wait()
assert later.tolist() == [1]
told = device(rank, rank)
dist.broadcast(told, 1)
assert told.tolist() == [1, 1]
parts = [device(9), device(9)]
dist.all_gather(parts, device(rank))
assert [part.item() for part in parts] == [0, 1]
whole = device(9, 9)
dist.all_gather_into_tensor(whole, device(rank))
assert whole.tolist() == [0, 1]
sums = device(9)
dist.reduce_scatter_tensor(sums, device(rank, 10 + rank))
assert sums.tolist() == [[1], [21]][rank]
passed = device(9, 9)
dist.all_to_all_single(passed, device(rank, 10 + rank))
assert passed.tolist() == [[0, 1], [10, 11]][rank]
dist.scatter(sums, [device(3), device(4)] if rank == 0 else None, src=0)
assert sums.tolist() == [3 + rank]
dist.gather(device(rank), parts if rank == 0 else None, dst=0)
# Both send before either receives.
got = device(9)
sent, received = dist.isend(device(rank), 1 - rank), dist.irecv(got, 1 - rank)
sent.wait(), received.wait()
assert got.item() == 1 - rank
on_cpu = torch.tensor([rank])
dist.all_reduce(on_cpu)
assert on_cpu.item() == 1
group = dist.new_group([0, 1])
dist.all_reduce(mine, group=group)
assert mine.tolist() == [2, 4]
dist.distributed_c10d.set_timeout(timedelta(seconds=100))
dist.barrier()
dist.destroy_process_group()
"""
    )


def test_data_parallel_training_over_gloo(program: Callable[..., str]) -> None:
    program(
        "ASKED = dict(backend='gloo')\n"
        + RANKS
        + """
torch.manual_seed(rank)
model = torch.nn.Linear(4, 1).to("granule")
parallel = torch.nn.parallel.DistributedDataParallel(model)
first = [parameter.detach().cpu() for parameter in model.parameters()]
parallel(torch.full((2, 4), float(rank), device="granule")).sum().backward()
# Rank 0 has a gradient of 0, rank 1 of 2.
assert model.weight.grad.tolist() == [[1, 1, 1, 1]] and model.bias.grad.tolist() == [2]
weights = [torch.empty(1, 4), torch.empty(1, 4)]
dist.all_gather(weights, first[0])
assert weights[0].equal(weights[1]), "the first rank's are everybody's"
dist.destroy_process_group()
"""
    )


def test_a_program_ends_while_a_collective_tells_its_end(program: Callable[..., str]) -> None:
    program(
        "ASKED = dict(backend='gloo')\n"
        + RANKS
        + """
import time
work = dist.all_reduce(torch.ones(4, device="granule"), async_op=True)
future = work.get_future()
future.then(lambda done: [time.sleep(0.005) for _ in range(100)])
while not future.done():
    time.sleep(0.001)
"""
    )


def test_a_rank_that_fails_does_not_wait_for_the_others(program: Callable[..., str]) -> None:
    program(
        "ASKED = dict(backend='gloo')\n"
        + RANKS
        + """
import time
note = os.environ["STORE"] + "-asked"
if rank == 0:
    dist.all_reduce(torch.ones(4, device="granule"), async_op=True)
    with open(note + "-begun", "w") as file:
        file.write(str(os.getpid()))
    os.rename(note + "-begun", note)
    sys.exit(0)
while not os.path.exists(note):
    time.sleep(0.01)
with open(note) as file:
    other = int(file.read())
end = time.monotonic() + 30
while True:
    try:
        os.kill(other, 0)
    except ProcessLookupError:
        break
    assert time.monotonic() < end, "rank 0 waits for an operation that never ends"
    time.sleep(0.01)
"""
    )
