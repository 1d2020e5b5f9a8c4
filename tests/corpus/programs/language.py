"""Language models that are trained: whole, by adapters, on pairs."""
import random

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from parts import Decoder, frozen, made, token_loss, trained, update
from workloads import BF16, Lora, boundary, from_config, gpt2_cfg, tokens, train_lm


def gpt2_small(mark, iters):
    """Gradients of four small batches are added up before each step of an optimizer without foreach."""
    from transformers import GPT2LMHeadModel
    m = from_config(gpt2_cfg(n_embd=768, n_layer=12, n_head=12), cls=GPT2LMHeadModel).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, foreach=False)
    for n in range(iters):
        boundary(mark, n)
        for _ in range(4):
            ids = tokens(12, 1024, 50257)
            with torch.autocast("cuda", dtype=BF16):
                loss = m(input_ids=ids, labels=ids, use_cache=False).loss / 4
            loss.backward()
            del loss
        opt.step()
        opt.zero_grad(set_to_none=True)
    return m, opt


def gpt2_checkpoint(mark, iters):
    from transformers import GPT2LMHeadModel
    m = from_config(gpt2_cfg(n_embd=1280, n_layer=36, n_head=20), cls=GPT2LMHeadModel)
    m.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    return train_lm(mark, iters, m, lambda k: (tokens(16, 1024, 50257) for _ in range(k)))


def one_b():
    return made(lambda: Decoder(2048, 16, 32, 8, 8192, vocab=128256))


def finetune_empty_cache(mark, iters):
    """The program gives its cache back between training and a look at validation batches."""
    m = one_b().train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-5)
    for n in range(iters):
        boundary(mark, n)
        ids = tokens(4, random.choice([768, 1024, 1536, 2048]), 128256)
        loss = token_loss(m(ids), ids)
        update(opt, loss, list(m.parameters()))
        loss.item()
        del loss
        if n % 4 == 3:
            torch.cuda.empty_cache()
            with torch.no_grad():
                for _ in range(3):
                    ids = tokens(8, random.randrange(200, 2000), 128256)
                    token_loss(m(ids), ids).item()
            torch.cuda.empty_cache()
    return m, opt


def lora_8b(mark, iters):
    """Adapters on 8 B weights, no checkpointing, short texts of any length."""
    m = frozen(made(lambda: Decoder(4096, 32, 32, 8, 14336, vocab=128256))).train()
    for layer in m.layers:
        a, f = layer.attention, layer.feed
        a.q, a.v, f.down = Lora(a.q, 8), Lora(a.v, 8), Lora(f.down, 8)
    opt = torch.optim.AdamW(trained(m), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        ids = tokens(2, random.randrange(128, 1024), 128256)
        loss = token_loss(m(ids), ids)
        update(opt, loss, trained(m))
        del loss
    return m, opt


def sft_varlen(mark, iters):
    """All weights, batches of a budget of tokens: long texts come in few rows, short ones in many."""
    m = made(lambda: Decoder(2560, 24, 20, 4, 8960, vocab=151936)).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-5, foreach=False)
    again = lambda layer, *a, **kw: checkpoint(layer, *a, use_reentrant=False, **kw)
    for n in range(iters):
        boundary(mark, n)
        for _ in range(2):
            longest = min(4096, int(random.lognormvariate(6.3, 0.8)) + 32)
            ids = tokens(max(1, 8192 // longest), longest, 151936)
            loss = token_loss(m(ids, each=again), ids)
            loss.backward()
            del loss
        opt.step()
        opt.zero_grad(set_to_none=True)
    return m, opt


def preference_pairs(mark, iters):
    """Chosen and rejected answers, of other lengths, beside a frozen model that is asked first."""
    m, reference = one_b().train(), frozen(one_b())
    opt = torch.optim.AdamW(m.parameters(), lr=1e-6)

    def logp(model, ids):
        logits = model(ids)[:, :-1].float().log_softmax(-1)
        return logits.gather(-1, ids[:, 1:, None]).squeeze(-1).sum(-1)

    for n in range(iters):
        boundary(mark, n)
        prompt = random.randrange(64, 512)
        pair = [tokens(2, prompt + random.randrange(32, 768), 128256) for _ in range(2)]
        with torch.no_grad():
            base = [logp(reference, ids) for ids in pair]
        own = [logp(m, ids) for ids in pair]
        loss = -F.logsigmoid((own[0] - base[0]) - (own[1] - base[1])).mean()
        update(opt, loss, list(m.parameters()))
        del own, base, loss
    return m, reference, opt
