"""The program of docs/guide.md: BERT large, fine-tuned on batches that are as long as their longest text.

It is an ordinary training script: it knows nothing of Granule. Needs torch and transformers.
"""

import random

import torch
from transformers import BertConfig, BertForMaskedLM

STEPS, BATCH = 12, 48

random.seed(0)
torch.manual_seed(0)
torch.backends.cuda.enable_cudnn_sdp(False)

with torch.device("cuda"):
    model = BertForMaskedLM(
        BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    )
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

for step in range(STEPS):
    length = max(random.randint(64, 512) for _ in range(4)) // 8 * 8
    tokens = torch.randint(0, 30_000, (BATCH, length)).to("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: length {length}, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most", flush=True)
