"""What programs of several families are made of: transformer layers, and sides of a training step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from workloads import BF16, DEV


class Attention(nn.Module):
    """Heads over the own sequence, or over a context's; `cache` is what a decoder has seen before."""

    def __init__(self, dim, heads, kv_heads=None, bias=False):
        super().__init__()
        self.heads, self.kv, self.size = heads, kv_heads or heads, dim // heads
        self.q = nn.Linear(dim, heads * self.size, bias=bias)
        self.k = nn.Linear(dim, self.kv * self.size, bias=bias)
        self.v = nn.Linear(dim, self.kv * self.size, bias=bias)
        self.o = nn.Linear(heads * self.size, dim, bias=bias)

    def split(self, x, heads):
        return x.view(x.shape[0], x.shape[1], heads, self.size).transpose(1, 2)

    def forward(self, x, context=None, causal=False, cache=None):
        seen = x if context is None else context
        q, k, v = self.split(self.q(x), self.heads), self.split(self.k(seen), self.kv), self.split(self.v(seen), self.kv)
        if cache is not None:
            k, v = cache(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.kv != self.heads)
        return self.o(y.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.gate = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Plain(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class Block(nn.Module):
    """A layer before whose parts is a norm; `feed` is its second part."""

    def __init__(self, dim, heads, kv_heads=None, hidden=None, feed=None, cross=False):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.cross = Attention(dim, heads) if cross else None
        self.n3 = nn.RMSNorm(dim) if cross else None
        self.feed = feed or Gated(dim, hidden or 4 * dim)

    def forward(self, x, context=None, causal=True, cache=None):
        x = x + self.attention(self.n1(x), causal=causal, cache=cache)
        if self.cross is not None:
            x = x + self.cross(self.n3(x), context=context)
        return x + self.feed(self.n2(x))


class Decoder(nn.Module):
    """A language model of such layers."""

    def __init__(self, dim, layers, heads, kv_heads=None, hidden=None, vocab=32000, **kw):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim, heads, kv_heads, hidden, **kw) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def hidden(self, ids, context=None, caches=None, each=lambda layer, *a, **kw: layer(*a, **kw)):
        x = self.embed(ids)
        for n, layer in enumerate(self.layers):
            cache = caches[n] if caches else None
            x = each(layer, x, context=context, causal=ids.shape[1] > 1, cache=cache)
        return self.norm(x)

    def forward(self, ids, **kw):
        return self.head(self.hidden(ids, **kw))


def made(build, dtype=BF16):
    """A model whose weights are made on the device in this type."""
    old = torch.get_default_dtype()
    try:
        torch.set_default_dtype(dtype)
        with torch.device(DEV):
            return build()
    finally:
        torch.set_default_dtype(old)


def frozen(model):
    for p in model.parameters():
        p.requires_grad_(False)
    return model.eval()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def token_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def update(opt, loss, params=None):
    """The backward half of a step; with `params`, their gradients are clipped."""
    loss.backward()
    if params is not None:
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=False)
    opt.step()
    opt.zero_grad(set_to_none=True)


def upload(*shape, dtype=torch.float32):
    """A batch as a loader hands it over."""
    return torch.empty(shape, dtype=dtype).to(DEV, non_blocking=True)
