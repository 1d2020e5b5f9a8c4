"""A real training step, measured: what `cargo xtask gpu-torch` compares between allocators.

usage: training_step.py ALLOCATOR STEPS

Prints one line of JSON: the losses, the median time of a step, and the peaks. Losses are those of a fixed seed with
deterministic kernels, so that they are equal to the last bit wherever the allocator does its work.
"""
import json
import os
import statistics
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import allocators
import torch


def main():
    allocator, steps = sys.argv[1], int(sys.argv[2])
    allocators.install(allocator)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.manual_seed(0)
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=768, n_layer=12, n_head=12, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    net = GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(1)
    losses, times = [], []
    for step in range(steps):
        # Lengths vary, as they do in real data: that is what makes an allocator work.
        length = 256 + 64 * (step * 5 % 7)
        tokens = torch.randint(0, 50257, (8, length), generator=generator).cuda()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = net(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    figures = torch.cuda.memory_stats()
    warm = times[min(7, len(times) - 1):]
    print(json.dumps({
        "allocator": allocator,
        "backend": torch.cuda.get_allocator_backend(),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "losses": losses,
        "step_ms": 1000 * statistics.median(warm),
        "peak_allocated": figures["allocated_bytes.all.peak"],
        "peak_reserved": figures["reserved_bytes.all.peak"],
        "device_allocations": figures["num_device_alloc"],
    }))


if __name__ == "__main__":
    main()
