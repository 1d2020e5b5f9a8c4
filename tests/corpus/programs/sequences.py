"""Encoders and encoder-decoders over sequences of many lengths: text and speech."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

from parts import Block, Plain, made, update, upload
from workloads import BF16, DEV, boundary, from_config, lens, tokens


def roberta_buckets(mark, iters):
    """Sentences of like length share a batch of about as many tokens, so rows and columns both change."""
    from transformers import RobertaConfig, RobertaForSequenceClassification
    m = from_config(RobertaConfig(), cls=RobertaForSequenceClassification).train()
    opt = torch.optim.AdamW(m.parameters(), lr=2e-5)
    for n in range(iters):
        boundary(mark, n)
        longest = max(lens(random, 8, 16, 510, mu=4.6, sigma=0.8))
        rows = max(2, 16384 // longest)
        ids, mask = tokens(rows, longest, 50000), torch.ones(rows, longest, dtype=torch.long).to(DEV)
        with torch.autocast("cuda", dtype=BF16):
            logits = m(input_ids=ids, attention_mask=mask).logits
            loss = F.cross_entropy(logits.float(), torch.zeros(rows, dtype=torch.long).to(DEV))
        update(opt, loss, list(m.parameters()))
        del logits, loss
    return m, opt


def translation_t5(mark, iters):
    """Source and target have lengths of their own; every few steps a batch is translated with a growing cache."""
    from transformers import T5Config, T5ForConditionalGeneration
    cfg = T5Config(d_model=1024, d_kv=64, d_ff=2816, num_layers=8, num_heads=16, feed_forward_proj="gated-gelu", dropout_rate=0.1, decoder_start_token_id=0)
    m = from_config(cfg, cls=T5ForConditionalGeneration).train()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4, foreach=False)
    for n in range(iters):
        boundary(mark, n)
        source, target = max(lens(random, 16, 24, 512)), max(lens(random, 16, 16, 400, mu=5.0))
        with torch.autocast("cuda", dtype=BF16):
            loss = m(input_ids=tokens(16, source, 32000), labels=tokens(16, target, 32000)).loss
        update(opt, loss)
        del loss
        if n % 4 == 3:
            m.eval()
            with torch.no_grad(), torch.autocast("cuda", dtype=BF16):
                seen = m.encoder(input_ids=tokens(24, source, 32000))
                past, last = None, tokens(24, 1, 32000)
                for _ in range(random.randrange(6, 12)):
                    out = m(encoder_outputs=seen, decoder_input_ids=last, past_key_values=past, use_cache=True)
                    past, last = out.past_key_values, out.logits[:, -1:].argmax(-1)
            del seen, past, last, out
            m.train()
    return m, opt


class Listener(nn.Module):
    """Convolutions over the wave, then layers over what is left of its length."""

    def __init__(self, dim=768, layers=12):
        super().__init__()
        cuts = [(10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2)]
        self.waves = nn.ModuleList(nn.Conv1d(1 if not k else 512, 512, size, step, bias=False) for k, (size, step) in enumerate(cuts))
        self.norms = nn.ModuleList(nn.GroupNorm(512 if not k else 1, 512) for k in range(len(cuts)))
        self.into, self.near = nn.Linear(512, dim), nn.Conv1d(dim, dim, 129, padding=64, groups=16)
        self.layers = nn.ModuleList(Block(dim, 12, feed=Plain(dim, 4 * dim)) for _ in range(layers))
        self.head = nn.Linear(dim, 5000)

    def forward(self, x):
        x = x[:, None]
        for wave, norm in zip(self.waves, self.norms):
            x = F.gelu(norm(wave(x)))
        x = self.into(x.transpose(1, 2))
        x = x + F.gelu(self.near(x.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            if random.random() > 0.1:  # layers are left out at random while training
                x = layer(x, causal=False)
        return self.head(x)


def speech_durations(mark, iters):
    """Utterances from two to twenty seconds, in batches of at most 160 seconds."""
    m = made(Listener, torch.float32)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
    for n in range(iters):
        boundary(mark, n)
        seconds = min(20.0, max(2.0, random.lognormvariate(2.1, 0.5)))
        b = int(160 / seconds)
        with torch.autocast("cuda", dtype=BF16):
            logits = m(upload(b, int(16000 * seconds)))
        scores = logits.float().log_softmax(-1)
        text = tokens(b, random.randrange(10, 60), 5000)
        at = scores.gather(-1, text[:, None, :].expand(-1, scores.shape[1], -1))  # what a transducer's loss looks at
        loss = -torch.logsumexp(at, -1).mean()
        update(opt, loss, list(m.parameters()))
        del logits, scores, at, text, loss
    return m, opt
