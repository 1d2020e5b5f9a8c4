"""Training whose weights, gradients or activations are not all on the device, or leave it by side streams."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from parts import Block, Decoder, made, token_loss, update
from workloads import BF16, DEV, boundary, tokens

RANKS = 8


class Shard:
    """A layer's weights, of which a rank keeps an eighth; the whole is gathered on a side stream and let go again."""

    def __init__(self, layer, side):
        self.layer, self.side, self.whole = layer, side, None
        self.params = list(layer.parameters())
        self.shapes = [p.shape for p in self.params]
        padded = -(-sum(p.numel() for p in self.params) // RANKS) * RANKS
        self.own = nn.Parameter(torch.empty(padded // RANKS, dtype=torch.float32, device=DEV))
        self.release()

    def gather(self):
        if self.whole is not None:
            return
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            part = self.own.detach().to(BF16)
            self.whole = torch.empty(part.numel() * RANKS, dtype=BF16, device=DEV)
            for rank in range(RANKS):  # what an all-gather writes
                self.whole[rank * part.numel():(rank + 1) * part.numel()].copy_(part)

    def use(self):
        main = torch.cuda.current_stream()
        main.wait_stream(self.side)
        self.whole.record_stream(main)
        at = 0
        for p, shape in zip(self.params, self.shapes):
            p.data = self.whole[at:at + shape.numel()].view(shape)
            at += shape.numel()

    def release(self):
        for p in self.params:
            p.data = torch.empty(0, dtype=BF16, device=DEV)
        self.whole = None

    def reduce(self):
        """Gradients as one flat bucket, which the side stream sums up into the own eighth."""
        bucket = torch.cat([p.grad.flatten() for p in self.params])
        bucket = F.pad(bucket, (0, self.own.numel() * RANKS - bucket.numel()))
        for p in self.params:
            p.grad = None
        self.side.wait_stream(torch.cuda.current_stream())
        bucket.record_stream(self.side)
        with torch.cuda.stream(self.side):
            mine = bucket.view(RANKS, -1).sum(0).float()
            self.own.grad = mine if self.own.grad is None else self.own.grad + mine


class Copied(Shard):
    """Weights get memory of their own on the main stream, and the side stream waits instead of being recorded."""

    def use(self):
        main, at = torch.cuda.current_stream(), 0
        main.wait_stream(self.side)
        for p, shape in zip(self.params, self.shapes):
            p.data = torch.empty(shape, dtype=BF16, device=DEV).copy_(self.whole[at:at + shape.numel()].view(shape))
            at += shape.numel()
        self.side.wait_stream(main)
        self.whole = None

    def reduce(self):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            bucket = torch.empty(self.own.numel() * RANKS, device=DEV)
            torch.cat([p.grad.flatten().float() for p in self.params], out=bucket[:sum(s.numel() for s in self.shapes)])
            mine = bucket.view(RANKS, -1).sum(0)
            self.own.grad = mine if self.own.grad is None else self.own.grad + mine
        torch.cuda.current_stream().wait_stream(self.side)
        for p in self.params:
            p.grad = None


def sharded(mark, iters, kind, dim, layers):
    """The next layer is gathered while one computes; each backward step gathers once more and reduces."""
    side = torch.cuda.Stream()
    shards = [kind(made(lambda: Block(dim, 24, 8, 8192)), side) for _ in range(layers)]
    ends = made(lambda: nn.ModuleDict(dict(embed=nn.Embedding(32000, dim), head=nn.Linear(dim, 32000, bias=False))))
    opt = torch.optim.AdamW([s.own for s in shards] + list(ends.parameters()), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        ids = tokens(2, random.choice([1024, 2048, 3072]), 32000)
        inputs, x = [], ends["embed"](ids)
        first = x
        for k, s in enumerate(shards):
            s.gather()
            if k + 1 < layers:
                shards[k + 1].gather()
            s.use()
            inputs.append(x.detach().requires_grad_())
            with torch.no_grad():
                x = s.layer(inputs[-1])
            s.release()
        x = x.detach().requires_grad_()
        token_loss(ends["head"](x), ids).backward()
        grad = x.grad
        del x
        for k in reversed(range(layers)):
            shards[k].gather()
            if k:
                shards[k - 1].gather()
            shards[k].use()
            at = inputs.pop()
            shards[k].layer(at).backward(grad)
            grad = at.grad
            shards[k].reduce()
            shards[k].release()
        first.backward(grad)
        del at, grad, first
        torch.cuda.current_stream().wait_stream(side)
        opt.step()
        opt.zero_grad(set_to_none=True)
    return shards, ends, opt


def fsdp_gather(mark, iters):
    return sharded(mark, iters, Shard, 3072, 14)


def fsdp_copies(mark, iters):
    return sharded(mark, iters, Copied, 4096, 10)


def ddp_buckets(mark, iters):
    """Gradients gather in buckets of 25 MiB; a full bucket is summed up on a side stream while the backward goes on."""
    m = made(lambda: Decoder(1024, 18, 16, hidden=2816, vocab=50304), torch.float32)
    side, limit = torch.cuda.Stream(), 25 << 20
    waiting, sums = [], []

    def flush():
        flat = torch.cat([p.grad.flatten() for p in waiting])
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sent = flat.to(BF16)
            flat.record_stream(side)
            flat.copy_(sent).div_(RANKS)
        sums.append((flat, list(waiting)))
        waiting.clear()

    def ready(p):
        waiting.append(p)
        if sum(q.numel() * 4 for q in waiting) >= limit:
            flush()

    for p in m.parameters():
        p.register_post_accumulate_grad_hook(ready)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True)
    for n in range(iters):
        boundary(mark, n)
        ids = tokens(random.choice([6, 8]), 1024, 50304)
        with torch.autocast("cuda", dtype=BF16):
            loss = token_loss(m(ids), ids)
        loss.backward()
        if waiting:
            flush()
        torch.cuda.current_stream().wait_stream(side)
        for flat, params in sums:
            for p, part in zip(params, flat.split([p.numel() for p in params])):
                p.grad.copy_(part.view_as(p))
        sums.clear()
        del flat, part, loss
        opt.step()
        opt.zero_grad(set_to_none=True)
    return m, opt


def offload_activations(mark, iters):
    """What the backward needs goes to the host by a side stream and comes back; so do weights of the layers, one ahead."""
    m = made(lambda: Decoder(2560, 20, 20, 4, 8960))
    out, back = torch.cuda.Stream(), torch.cuda.Stream()
    opt = torch.optim.SGD(m.parameters(), lr=1e-3)

    def pack(x):
        if x.numel() < 1 << 16 or isinstance(x, nn.Parameter):
            return x
        out.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(out):
            x.record_stream(out)
            host = torch.empty(x.shape, dtype=x.dtype)
        return host

    def unpack(x):
        if x.is_cuda:
            return x
        with torch.cuda.stream(back):
            here = torch.empty(x.shape, dtype=x.dtype, device=DEV)
            here.copy_(x, non_blocking=True)
        torch.cuda.current_stream().wait_stream(back)
        here.record_stream(torch.cuda.current_stream())
        return here

    for n in range(iters):
        boundary(mark, n)
        ids = tokens(2, random.randrange(512, 2048), 32000)
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            loss = token_loss(m(ids), ids)
        loss.backward()
        del loss
        for p in m.parameters():  # the optimizer's state lives on the host: a gradient leaves, an update comes
            if p.numel() > 1 << 20:
                with torch.cuda.stream(back):
                    step = torch.empty_like(p)
                torch.cuda.current_stream().wait_stream(back)
                step.record_stream(torch.cuda.current_stream())
                p.data.add_(step)
                p.grad = None
        del step
        opt.step()
        opt.zero_grad(set_to_none=True)
    return m, opt


class Experts(nn.Module):
    """Each token goes to two experts; how many an expert gets is drawn on the CPU."""

    def __init__(self, dim, hidden, experts):
        super().__init__()
        self.route = nn.Linear(dim, experts, bias=False)
        self.up = nn.ModuleList(nn.Linear(dim, hidden, bias=False) for _ in range(experts))
        self.down = nn.ModuleList(nn.Linear(hidden, dim, bias=False) for _ in range(experts))

    def forward(self, x):
        flat = x.flatten(0, 1)
        weight = self.route(flat).softmax(-1)
        count, out = len(self.up), torch.zeros_like(flat)
        share = [random.gammavariate(2, 1) for _ in range(count)]
        for k, (up, down) in enumerate(zip(self.up, self.down)):
            n = min(len(flat), int(2 * len(flat) * share[k] / sum(share)))
            if n:
                at = torch.randint(0, len(flat), (n,)).to(DEV)
                y = down(F.silu(up(flat[at]))) * weight[at, k, None]
                out = out.index_add(0, at, y)
        return out.view_as(x)


def moe_train(mark, iters):
    m = made(lambda: Decoder(1024, 8, 16, vocab=50304))
    for layer in m.layers[1::2]:
        layer.feed = made(lambda: Experts(1024, 1408, 32))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        ids = tokens(8, 1024, 50304)
        loss = token_loss(m(ids), ids)
        update(opt, loss)
        del loss
    return m, opt


def pipeline_stage(mark, iters):
    """A stage of a pipeline, one forward and one backward in turn; what neighbours send comes and goes by side streams."""
    dim, depth, batches = 2048, 3, 8
    m = made(lambda: nn.Sequential(*(Block(dim, 16, 4, 5632) for _ in range(6))))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    into, out = torch.cuda.Stream(), torch.cuda.Stream()

    def received(length):
        with torch.cuda.stream(into):
            x = torch.empty(2, length, dim, dtype=BF16, device=DEV)
        main = torch.cuda.current_stream()
        main.wait_stream(into)
        x.record_stream(main)
        return x

    def sent(x):
        out.wait_stream(torch.cuda.current_stream())
        x.record_stream(out)

    for n in range(iters):
        boundary(mark, n)
        length, flight = random.randrange(512, 2048, 64), []
        for k in range(batches + depth):
            if k < batches:
                x = received(length).requires_grad_()
                y = m(x)
                sent(y.detach())
                flight.append((x, y))
            if k >= depth:
                x, y = flight.pop(0)
                y.backward(received(length))
                sent(x.grad)
            del x, y
        opt.step()
        opt.zero_grad(set_to_none=True)
    return m, opt
