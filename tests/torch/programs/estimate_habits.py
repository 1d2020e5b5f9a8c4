"""What programs do besides training: print statistics, catch out-of-memory errors, capture a graph, load data in workers,
generate text. A script of its own; `granule estimate --capacity 4GiB` runs it."""
import gc

import torch
from torch import nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel


def main():
    net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.Adam(net.parameters(), capturable=True)
    for (batch,) in DataLoader([(torch.rand(512),) for _ in range(16)], batch_size=4, num_workers=2, pin_memory=True):
        loss = net(batch.cuda(non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        assert loss.item() == 0.0
    del loss  # A graph of autograd that is alive would forbid the capture below.
    assert torch.cuda.memory_allocated() > 0 and "requested" in torch.cuda.memory_summary().lower()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    assert torch.cuda.memory_snapshot() and torch.cuda.get_allocator_backend() == "native"

    try:
        torch.empty(5 << 30, dtype=torch.uint8, device="cuda")
        raise AssertionError("5 GiB on a device of 4")
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 5.00 GiB" in str(error), error
    gc.collect()
    torch.cuda.empty_cache()

    static = torch.rand(64, 512, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        net(static).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    static.record_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        net(static).sum().backward()
    graph.replay()

    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=1, n_head=2, n_positions=64, vocab_size=100)).cuda().eval()
    prompt = torch.randint(0, 100, (2, 8), device="cuda")
    assert model.generate(prompt, max_new_tokens=5, do_sample=False, pad_token_id=0).shape == (2, 13)
    print("all done")


if __name__ == "__main__":
    main()
