"""Real training under one allocator: train.py MODE [PHASE...]; each phase says one line."""
import hashlib
import statistics
import sys
import time

import common
from common import FAKE, TINY, say

PHASES = ("gpt", "resnet", "streams", "graphs")


def digest(*tensors):
    """Of contents, so that runs can be compared bit for bit."""
    import torch

    value = hashlib.sha256()
    for tensor in tensors:
        value.update(tensor.detach().contiguous().view(torch.uint8).cpu().numpy().tobytes())
    return value.hexdigest()[:16]


def steps_of(run, count):
    """Runs steps, times each, and follows the allocator's figures."""
    import torch

    times, losses, series = [], [], []
    for step in range(count):
        inputs = run.inputs(step)
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = run.step(*inputs)
        torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
        losses.append(loss.item())
        del inputs, loss
        series.append(list(common.figures(common.SHORT).values()))
    warm = times[len(times) // 3:]
    return {
        "steps": count, "step_ms": statistics.median(warm), "step_ms_mean": statistics.fmean(warm),
        "first_steps_ms": [round(t, 2) for t in times[:5]], "worst_warm_ms": max(warm), "losses": losses,
        "series_of": common.SHORT, "series": series,
    }


class Run:
    """A network that is trained on inputs that vary."""

    # Without autocast's cache of weights: that is hashed by address and let go in an order that differs from process to process, natively, too.
    def step(self, *inputs):
        import torch

        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            loss = self.loss(*inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()


class GptRun(Run):
    def __init__(self):
        import models
        import torch

        size = dict(d=128, layers=2, heads=4, vocab=1000) if TINY else {}
        self.vocab = 1000 if TINY else 50304
        self.batch = 2 if TINY else 12
        torch.manual_seed(0)
        self.net = self.loss = models.Gpt(**size).cuda()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=3e-4)
        self.generator = torch.Generator().manual_seed(1)

    def inputs(self, step):
        import torch

        length = 192 + 64 * (step * 5 % 11) + 8 * (step * 7 % 5)
        return (torch.randint(0, self.vocab, (self.batch, length), generator=self.generator).cuda(),)


class ResNetRun(Run):
    def __init__(self):
        import models
        import torch

        torch.manual_seed(0)
        self.batch = 2 if TINY else 64
        self.net = models.ResNet(**(dict(depths=(1, 1), width=8) if TINY else {})).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.generator = torch.Generator().manual_seed(2)

    def inputs(self, step):
        import torch

        side = 160 + 32 * (step * 3 % 5)
        batch = self.batch if step % 6 else self.batch // 2 + 1
        images = torch.rand((batch, 3, side, side), generator=self.generator)
        labels = torch.randint(0, 1000, (batch,), generator=self.generator)
        return images.cuda(), labels.cuda()

    def loss(self, images, labels):
        import torch.nn.functional as F

        return F.cross_entropy(self.net(images), labels)


def trained(kind, count):
    import torch

    common.fresh()
    run = kind()
    said = steps_of(run, count)
    said["parameters"] = digest(*run.net.parameters())
    said["figures"] = common.figures()
    said["segments"] = hashlib.sha256(repr(common.segments()).encode()).hexdigest()[:16]
    said["segment_count"] = len(common.segments())
    said["driver_used"] = common.driver_used()
    del run
    torch.cuda.synchronize()
    return said


def gpt():
    return trained(GptRun, 4 if TINY else 44)


def resnet():
    return trained(ResNetRun, 3 if TINY else 24)


def spin(cycles):
    import torch

    if hasattr(torch.cuda, "_sleep") and not FAKE:
        torch.cuda._sleep(cycles)


def streams():
    """Memory crosses streams, and is freed while the device still uses it: whoever reuses it too early is seen in the bytes."""
    import random

    import torch

    common.fresh()
    drawn = random.Random(3)
    side = [torch.cuda.Stream() for _ in range(6)]
    wrong, count = [], 40 if TINY else 600
    start = time.perf_counter()
    for at in range(count):
        maker, user = side[at % 6], side[(at * 5 + 1 + at // 6) % 6]
        numbers = drawn.choice((1 << 10, 1 << 16, 300_000, 1 << 20, 3_000_000, 6 << 20))
        with torch.cuda.stream(maker):
            block = torch.full((numbers,), at, dtype=torch.int32, device="cuda")
        user.wait_stream(maker)
        with torch.cuda.stream(user):
            spin(drawn.choice((20_000, 100_000, 400_000)))
            wrong.append((block != at).sum())
        block.record_stream(user)
        del block
        # The maker asks again at once: what it gets must not be what the user still reads.
        with torch.cuda.stream(maker):
            other = torch.full((numbers,), -at - 1, dtype=torch.int32, device="cuda")
            wrong.append((other != -at - 1).sum())
            del other
        if at % 50 == 49:
            main = torch.cuda.current_stream()
            for stream in side:
                main.wait_stream(stream)
    torch.cuda.synchronize()
    crossing = time.perf_counter() - start
    bad = sum(int(value) for value in wrong)
    said = {"crossings": count, "crossing_s": crossing, "wrong_words": bad, "figures": common.figures()}
    # A loader's stream copies ahead, from pinned memory.
    del wrong
    loader, total, expected = torch.cuda.Stream(), [], []
    pinned = [torch.full((n,), i, dtype=torch.float32).pin_memory() for i, n in enumerate((1 << 18, 1 << 20, 5 << 18, 3 << 20))]
    for at in range(8 if TINY else 120):
        host = pinned[at * 3 % 4]
        with torch.cuda.stream(loader):
            batch = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(loader)
        batch.record_stream(torch.cuda.current_stream())
        spin(30_000)
        total.append(batch.max() + batch.min())
        expected.append(2.0 * (at * 3 % 4))
        del batch
    torch.cuda.synchronize()
    said["wrong_batches"] = sum(float(a) != b for a, b in zip(total, expected))
    names = ("num_host_alloc", "num_host_free", "allocated_bytes.peak", "segments.allocated", "host_alloc_time.total")
    said["pinned"] = {name: torch.cuda.host_memory_stats().get(name) for name in names}
    said["fails"] = (said["wrong_words"] + said["wrong_batches"]) if not FAKE else 0
    return said


def graphs():
    """Captured steps that share a pool, replayed between other work; equal to what the same steps give without a graph."""
    import torch

    common.fresh()
    torch.manual_seed(5)
    width = 64 if TINY else 1024
    net = torch.nn.Sequential(*[m for _ in range(4) for m in (torch.nn.Linear(width, width), torch.nn.ReLU())]).cuda()
    sizes, pool, held = (8, 32, 128), torch.cuda.graph_pool_handle(), {}
    inputs = {n: torch.randn(n, width, generator=torch.Generator().manual_seed(n)).cuda() for n in sizes}
    # All of it on one stream of its own, as PyTorch's documentation says: autograd remembers the stream of each parameter's first use.
    plain, side = {}, torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for n in sizes:
            for _ in range(2):
                out = net(inputs[n])
                plain[n] = (out.detach().clone(), torch.autograd.grad(out.square().sum(), list(net.parameters())))
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    for n in sizes:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool, stream=side):
            out = net(inputs[n])
            grads = torch.autograd.grad(out.square().sum(), list(net.parameters()))
        held[n] = (graph, out, grads)
    captured = common.figures()
    wrong, churn = 0, []
    start = time.perf_counter()
    for turn in range(3 if TINY else 30):
        for n in sizes:
            graph, out, grads = held[n]
            graph.replay()
            # Ordinary work in between, of sizes that change.
            churn.append(torch.full((1000 * (turn + 1) * n,), turn, device="cuda"))
            if len(churn) > 5:
                churn.pop(0)
            if not FAKE:
                same = torch.equal(out, plain[n][0]) and all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(grads, plain[n][1]))
                wrong += not same
        if turn % 10 == 9:
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    said = {"replays": 3 * (3 if TINY else 30), "wrong_replays": wrong, "replay_s": time.perf_counter() - start, "after_capture": captured,
            "outputs": digest(*[held[n][1] for n in sizes]), "pools": len({tuple(s["segment_pool_id"]) for s in torch.cuda.memory_snapshot()})}
    del held, graph, out, grads, churn
    common.fresh()
    said["figures_after"] = common.figures()
    said["fails"] = wrong
    return said


def body():
    mode, phases = sys.argv[1], sys.argv[2:] or PHASES
    started = time.perf_counter()
    common.deterministic()
    how = common.install(mode)
    import torch

    torch.cuda.init()
    start_s = round(time.perf_counter() - started, 2)
    common.turn()
    say(step="train", phase="start", start_s=start_s, backend=torch.cuda.get_allocator_backend(), device=torch.cuda.get_device_name(), **how)
    for phase in phases:
        began = time.perf_counter()
        try:
            said = globals()[phase]()
        except Exception as error:  # noqa: BLE001
            said = common.failure(error)
        say(step="train", mode=mode, phase=phase, seconds=round(time.perf_counter() - began, 2), **said)
    if not mode.startswith("native"):
        import granule_torch

        say(step="train", mode=mode, phase="report", report=granule_torch.report()[:3000])


if __name__ == "__main__":
    common.main(body)
