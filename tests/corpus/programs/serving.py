"""Programs that answer: with caches that grow, pages, adapters, graphs, and with training in between."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from parts import Decoder, Plain, frozen, made, update, upload
from workloads import BF16, DEV, boundary, tokens


class Growing:
    """A layer's cache, which is made anew with each token."""

    def __init__(self):
        self.k = self.v = None

    def __call__(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], 2)
        self.v = v if self.v is None else torch.cat([self.v, v], 2)
        return self.k, self.v


class Pages:
    """A cache of equal pages; those that a sequence has are brought together for its attention."""

    def __init__(self, heads, size, pages, page=16):
        self.store = torch.empty(2, pages, page, heads, size, dtype=BF16, device=DEV)
        self.page, self.used = page, 0

    def __call__(self, k, v):
        self.used += k.shape[2]
        count = -(-self.used // self.page)
        at = torch.randint(0, self.store.shape[1], (k.shape[0], count)).to(DEV)
        both = self.store[:, at].flatten(2, 3)[:, :, :self.used].permute(0, 1, 3, 2, 4)
        return both[0], both[1]


def model(dim, layers):
    return made(lambda: Decoder(dim, layers, dim // 128, 4, 11 * dim // 4, vocab=64000))


@torch.no_grad()
def continued(m, ids, length, caches):
    """What a model says after a prompt, a token at a time."""
    said, last = [], ids
    for _ in range(length):
        last = m.head(m.hidden(last, caches=caches)[:, -1:]).argmax(-1)
        said.append(last)
    return torch.cat([ids, *said], 1)


@torch.no_grad()
def chat_caches(mark, iters):
    """Conversations of many lengths at the same time; each keeps its cache between its turns, and leaves at some time."""
    m, live = frozen(model(4096, 8)), []
    for n in range(iters):
        boundary(mark, n)
        while len(live) < 5:
            live.append([[Growing() for _ in m.layers], random.choice([1, 2, 4, 8]), random.randrange(2, 6)])
        for talk in live:
            caches, rows, _ = talk
            continued(m, tokens(rows, min(3000, int(random.lognormvariate(5.5, 1.0)) + 8), 64000), random.randrange(2, 7), caches)
            talk[2] -= 1
        live = [talk for talk in live if talk[2] > 0]
        del talk, caches
    return m


@torch.no_grad()
def paged_batches(mark, iters):
    """Pages are all there from the start; prompts come in chunks, and batches of decoding change their rows at each step."""
    m = frozen(model(2048, 10))
    store = [Pages(4, 128, 6000) for _ in m.layers]
    for n in range(iters):
        boundary(mark, n)
        for pages in store:
            pages.used = random.randrange(0, 1500)
        m.head(m.hidden(tokens(1, random.choice([128, 256, 512]), 64000), caches=store)[:, -1:]).argmax(-1)
        rows = random.randrange(8, 64)
        for pages in store:
            pages.used = random.randrange(200, 2000)
        logits = m.head(m.hidden(tokens(rows, 1, 64000), caches=store)[:, -1]).float()
        best, _ = (logits / 0.8).topk(50)
        torch.multinomial(best.softmax(-1), 1)
        del logits, best
    return m, store


@torch.no_grad()
def adapter_swaps(mark, iters):
    """Requests name one of many adapters; a few are on the device, and the one not used for longest makes room."""
    m, dim = frozen(model(2560, 10)), 2560
    ranks = [random.choice([8, 16, 64, 128, 256]) for _ in range(40)]
    here = {}
    for n in range(iters):
        boundary(mark, n)
        name = min(39, int(random.paretovariate(0.7)) - 1)
        if name not in here:
            while len(here) >= 8:
                here.pop(next(iter(here)))
            here[name] = [(upload(dim, ranks[name], dtype=BF16), upload(ranks[name], dim, dtype=BF16)) for _ in range(2 * len(m.layers))]
        adapter = here.pop(name)
        here[name] = adapter
        caches = [Growing() for _ in m.layers]
        part = iter([])

        def each(layer, x, **kw):
            (a, b), (c, d) = next(part), next(part)
            x = layer(x, **kw) + x @ a @ b
            return x + x @ c @ d

        last = tokens(random.choice([1, 2, 4]), random.randrange(32, 1200), 64000)
        for _ in range(random.randrange(3, 8)):
            part = iter(adapter)
            last = m.head(m.hidden(last, caches=caches, each=each)[:, -1:]).argmax(-1)
        del adapter, caches, last
    return m, here


def rlhf_rounds(mark, iters):
    """Answers are generated, scored by three other models, and then learned from in small batches."""
    actor, critic = model(2048, 6), model(2048, 6)
    critic.head = made(lambda: nn.Linear(2048, 1, bias=False))
    reference, judge = frozen(model(2048, 6)), frozen(model(2048, 6))
    opts = [torch.optim.AdamW(x.parameters(), lr=1e-6) for x in (actor, critic)]

    def logp(m, ids):
        return m(ids)[:, :-1].float().log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)

    for n in range(iters):
        boundary(mark, n)
        asked, said = random.randrange(64, 400), random.randrange(8, 20)
        texts = continued(actor, tokens(16, asked, 64000), said, [Growing() for _ in actor.layers])
        with torch.no_grad():
            old, base = logp(actor, texts), logp(reference, texts)
            value, reward = critic(texts).squeeze(-1), judge.hidden(texts)[:, -1].mean(-1)
            gain = reward[:, None] - (old - base) - value[:, 1:]
        for at in range(0, 16, 4):
            ids, part = texts[at:at + 4], slice(at, at + 4)
            ratio = (logp(actor, ids) - old[part]).exp()
            loss = -torch.min(ratio * gain[part], ratio.clamp(0.8, 1.2) * gain[part]).mean()
            update(opts[0], loss, list(actor.parameters()))
            update(opts[1], F.mse_loss(critic(ids).squeeze(-1)[:, 1:].float(), gain[part].float()))
            del ids, ratio, loss
        del texts, old, base, value, reward, gain
    return actor, critic, opts


def graphs_beside_eager(mark, iters):
    """A graph's memory is to all others one thing that stays: inputs, outputs and a workspace, held as long as the graph."""
    m = made(lambda: nn.Sequential(*(Plain(2048, 8192) for _ in range(10))), torch.float32)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    side, graphs = torch.cuda.Stream(), {}
    for n in range(iters):
        boundary(mark, n)
        rows = random.choice([256, 512, 1024, 2048])
        if rows not in graphs:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # a capture is preceded by a few rounds
                for _ in range(2):
                    m(upload(rows, 2048)).sum().backward()
            torch.cuda.current_stream().wait_stream(side)
            opt.zero_grad(set_to_none=True)
            graphs[rows] = [torch.empty(rows, 2048, device=DEV) for _ in range(2)] + [torch.empty(40 * rows * 8192 * 4, dtype=torch.uint8, device=DEV)]
            if len(graphs) > 3:
                graphs.pop(next(iter(graphs)))
        held = graphs.get(rows)
        if held:
            held[0].copy_(upload(rows, 2048))
        for _ in range(random.randrange(1, 4)):  # sizes that no graph has
            x = upload(random.randrange(100, 3000), 2048)
            with torch.autocast("cuda", dtype=BF16):
                y = m(x)
            update(opt, y.float().square().mean(), list(m.parameters()))
        del x, y, held
    return m, opt, graphs
