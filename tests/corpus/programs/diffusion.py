"""Programs that learn to take noise away."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from parts import Attention, Block, Plain, frozen, made, update, upload
from workloads import BF16, DEV, boundary


class Residual(nn.Module):
    def __init__(self, cin, cout, time=1280):
        super().__init__()
        self.a = nn.Sequential(nn.GroupNorm(32, cin), nn.SiLU(), nn.Conv2d(cin, cout, 3, padding=1))
        self.time = nn.Linear(time, cout)
        self.b = nn.Sequential(nn.GroupNorm(32, cout), nn.SiLU(), nn.Conv2d(cout, cout, 3, padding=1))
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.b(self.a(x) + self.time(t)[:, :, None, None])


class Spatial(nn.Module):
    """Attention over the places of an image, and over a text."""

    def __init__(self, dim, text=768):
        super().__init__()
        self.norm, self.bring = nn.GroupNorm(32, dim), nn.Linear(text, dim)
        self.block = Block(dim, dim // 64, feed=Plain(dim, 4 * dim), cross=True)

    def forward(self, x, text):
        y = self.norm(x).flatten(2).transpose(1, 2)
        return x + self.block(y, context=self.bring(text), causal=False).transpose(1, 2).view_as(x)


class Unet(nn.Module):
    def __init__(self, base=320, widths=(1, 2, 4)):
        super().__init__()
        w = [base * k for k in widths]
        self.time = Plain(320, 1280)
        self.lift = nn.Linear(320, 1280)
        self.begin = nn.Conv2d(4, base, 3, padding=1)
        self.down, self.up, last = nn.ModuleList(), nn.ModuleList(), base
        for k, c in enumerate(w):
            self.down.append(nn.ModuleList([Residual(last, c), Spatial(c), nn.Conv2d(c, c, 3, 2, 1) if k + 1 < len(w) else nn.Identity()]))
            last = c
        self.middle = nn.ModuleList([Residual(last, last), Spatial(last), Residual(last, last)])
        for c in reversed(w):
            self.up.append(nn.ModuleList([Residual(last + c, c), Spatial(c)]))
            last = c
        self.end = nn.Sequential(nn.GroupNorm(32, base), nn.SiLU(), nn.Conv2d(base, 4, 3, padding=1))

    def forward(self, x, t, text):
        t = self.lift(self.time(t))
        x, seen = self.begin(x), []
        for res, att, smaller in self.down:
            x = att(res(x, t), text)
            seen.append(x)
            x = smaller(x)
        x = self.middle[2](self.middle[1](self.middle[0](x, t), text), t)
        for res, att in self.up:
            old = seen.pop()
            x = att(res(torch.cat([F.interpolate(x, size=old.shape[-2:]), old], 1), t), text)
        return self.end(x)


def unet_buckets(mark, iters):
    """Batches of one shape each, an average of the weights, and now and then pictures drawn from it by many steps."""
    m, average = made(Unet, torch.float32), frozen(made(Unet, torch.float32))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    shapes = [(64, 64), (48, 80), (80, 48), (56, 72), (96, 40)]
    for n in range(iters):
        boundary(mark, n)
        b, (h, w) = random.choice([8, 12]), random.choice(shapes)
        clean, text, t = upload(b, 4, h, w), upload(b, 77, 768), upload(b, 320)
        with torch.autocast("cuda", dtype=BF16):
            loss = F.mse_loss(m(clean + torch.randn_like(clean), t, text).float(), clean)
        update(opt, loss, list(m.parameters()))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(m.parameters()), 1e-4)
            if n % 6 == 5:
                x = torch.randn(4, 4, *random.choice(shapes), device=DEV)
                for _ in range(4):
                    with torch.autocast("cuda", dtype=BF16):
                        both = average(x.repeat(2, 1, 1, 1), upload(8, 320), upload(8, 77, 768))
                    x = x - 0.1 * both.float().chunk(2)[0]
                del x, both
        del clean, text, t, loss
    return m, average, opt


class DitBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.feed = Attention(dim, heads, bias=True), Plain(dim, 4 * dim)
        self.set = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, c):
        a, b, g, d, e, h = self.set(c)[:, None].chunk(6, -1)
        norm = lambda v: F.layer_norm(v, v.shape[-1:])
        x = x + g * self.attention(norm(x) * (1 + b) + a)
        return x + h * self.feed(norm(x) * (1 + e) + d)


def dit_video(mark, iters):
    """A diffusion transformer on clips of other lengths and sizes; each layer is computed twice."""
    dim = 1536
    parts = made(lambda: nn.ModuleDict(dict(into=nn.Linear(64, dim), layers=nn.ModuleList(DitBlock(dim, 24) for _ in range(20)),
                                            out=nn.Linear(dim, 64), time=Plain(dim, dim))))
    opt = torch.optim.AdamW(parts.parameters(), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        frames, side = random.choice([1, 5, 9, 17]), random.choice([12, 16, 20])
        x = upload(2, frames * side * random.choice([12, 16, 20]), 64, dtype=BF16)
        c = parts["time"](upload(2, dim, dtype=BF16))
        y = parts["into"](x + torch.randn_like(x))
        for layer in parts["layers"]:
            y = checkpoint(layer, y, c, use_reentrant=False)
        loss = F.mse_loss(parts["out"](y).float(), x.float())
        update(opt, loss, list(parts.parameters()))
        del x, c, y, loss
    return parts, opt
