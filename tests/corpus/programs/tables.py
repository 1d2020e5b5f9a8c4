"""Programs over graphs and tables: sampled neighbourhoods, and users with things."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from parts import made, update, upload
from workloads import DEV, boundary


def gnn_sampling(mark, iters):
    """Neighbourhoods of three hops: each step draws how many nodes and edges a hop has. The next one loads meanwhile."""
    dims = [512, 1024, 1024, 172]
    m = made(lambda: nn.ModuleList(nn.ModuleList([nn.Linear(a, b), nn.Linear(a, b, bias=False)]) for a, b in zip(dims, dims[1:])), torch.float32)
    opt = torch.optim.Adam(m.parameters(), lr=1e-3)
    side = torch.cuda.Stream()

    def sampled():
        hops, nodes = [], 4096
        for most in (15, 10, 5):
            edges = sum(min(most, int(random.paretovariate(0.8))) for _ in range(1000)) * nodes // 1000
            hops.append((nodes, edges))
            nodes += int(edges * random.uniform(0.5, 0.8))
        with torch.cuda.stream(side):
            x = upload(nodes, dims[0])
            ends, sources = [], nodes
            for count, edges in reversed(hops):
                ends.append((torch.randint(0, sources, (edges,)).to(DEV), torch.randint(0, count, (edges,)).to(DEV), count))
                sources = count
        return x, ends

    ahead = sampled()
    for n in range(iters):
        boundary(mark, n)
        main = torch.cuda.current_stream()
        main.wait_stream(side)
        x, ends = ahead
        for t in (x, *(t for a, b, _ in ends for t in (a, b))):
            t.record_stream(main)
        ahead = sampled()
        for k, ((own, other), (source, target, count)) in enumerate(zip(m, ends)):
            sums = torch.zeros(count, x.shape[1], device=DEV).index_add_(0, target, x[source])
            degree = torch.zeros(count, device=DEV).index_add_(0, target, torch.ones(len(target), device=DEV))
            x = own(x[:count]) + other(sums / degree.clamp(min=1)[:, None])
            if k < 2:
                x = F.dropout(F.relu(x), 0.5)
        loss = F.cross_entropy(x, torch.zeros(len(x), dtype=torch.long).to(DEV))
        update(opt, loss)
        del x, ends, t, sums, degree, source, target, loss
    return m, opt, ahead


def recommender_towers(mark, iters):
    """Two towers over big tables with sparse gradients, histories of ragged length, and every thing of a batch against each."""
    sizes = [4_000_000, 1_000_000, 200_000, 50_000, 5_000]
    tables = made(lambda: nn.ModuleList(nn.EmbeddingBag(s, 96, mode="mean", sparse=True) for s in sizes), torch.float32)
    towers = made(lambda: nn.ModuleList(nn.Sequential(nn.Linear(96 * k, 1024), nn.ReLU(), nn.Linear(1024, 256)) for k in (3, 2)), torch.float32)
    dense, sparse = torch.optim.Adam(towers.parameters(), lr=1e-3), torch.optim.SGD(tables.parameters(), lr=0.1)
    for n in range(iters):
        boundary(mark, n)
        b = random.choice([2048, 4096, 8192])
        seen = []
        for table in tables:
            total = b * random.randrange(1, 30) + random.randrange(b)
            ids = torch.zeros(total, dtype=torch.long).to(DEV, non_blocking=True)
            seen.append(table(ids, (torch.arange(b) * (total // b)).to(DEV, non_blocking=True)))
        user, thing = towers[0](torch.cat(seen[:3], 1)), towers[1](torch.cat(seen[3:], 1))
        scores = F.normalize(user) @ F.normalize(thing).T / 0.05
        loss = F.cross_entropy(scores, torch.arange(b).to(DEV))
        loss.backward()
        for opt in (dense, sparse):
            opt.step()
            opt.zero_grad(set_to_none=True)
        del seen, user, thing, scores, loss, ids
    return tables, towers, dense
