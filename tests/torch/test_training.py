"""Small programs around training: two streams, convolutions, the profiler, data-parallel shapes."""
import gc

import torch
from observe import MIB, brief, error, raw, segments_of, stats
from scene import DEFAULT, EXPANDABLE, Run, scene

LAG = Run("events lag", env=(("FAKE_GPU_EVENT_LAG", "7"),))
RUNS = (DEFAULT, EXPANDABLE, LAG)


def network():
    return torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 16)).cuda()


@scene
def test_two_streams_prefetch_with_record_stream():
    net, side = network(), torch.cuda.Stream()
    optimizer = torch.optim.AdamW(net.parameters())
    seen = []

    def fetch(step):
        with torch.cuda.stream(side):
            return torch.ones(200 + 37 * (step % 5), 512).to("cuda", non_blocking=True)

    ahead = fetch(0)
    for step in range(12):
        main = torch.cuda.current_stream()
        main.wait_stream(side)
        rows, ahead = ahead, None
        rows.record_stream(main)
        ahead = fetch(step + 1)
        net(rows).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        del rows
        seen.append(stats())
    del net, optimizer, ahead
    return seen


@scene(real=True)
def test_cudnn_benchmark_asks_how_much_memory_there_is():
    """The search for the fastest algorithm asks the allocator for its largest free block."""
    torch.backends.cudnn.benchmark = True
    try:
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 32, 7, stride=2), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3)
        ).cuda()
        for size in (64, 96, 64):
            net(torch.ones(8, 3, size, size, device="cuda")).sum().backward()
    finally:
        torch.backends.cudnn.benchmark = False
    figures = stats()
    del net
    gc.collect()
    return figures if torch.cuda.get_device_name().startswith("Fake") else None


@scene
def test_the_profiler_sees_memory():
    net = network()
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        net(torch.ones(300, 512, device="cuda")).sum().backward()
    rows = {event.key: event.self_device_memory_usage for event in profile.key_averages()}
    assert any(size > 0 for size in rows.values())
    del net
    return {key: size for key, size in sorted(rows.items()) if size}


@scene(real=True)
def test_gradient_checkpoints_and_mixed_precision():
    from torch.utils.checkpoint import checkpoint

    blocks = torch.nn.ModuleList(torch.nn.Linear(1024, 1024) for _ in range(4)).cuda()
    optimizer, scaler = torch.optim.AdamW(blocks.parameters()), torch.amp.GradScaler("cuda")
    seen = []
    for rows in (64, 700, 300):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            flow = torch.ones(rows, 1024, device="cuda", requires_grad=True)
            for block in blocks:
                flow = checkpoint(block, flow, use_reentrant=False)
        scaler.scale(flow.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        del flow
        seen.append(brief())
    del blocks, optimizer, scaler
    return seen


@scene(real=True)
def test_streams_keep_their_memory_apart():
    streams = [torch.cuda.Stream() for _ in range(3)]
    kept = []
    for number, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            kept += [raw(3 * MIB + number), raw(30 * MIB)]
    seen = [stats(), segments_of()]
    del kept
    torch.cuda.synchronize()
    seen.append(segments_of())
    return seen


@scene(real=True)
def test_memory_can_be_resized_and_viewed():
    kept = torch.empty(0, device="cuda")
    seen = []
    for size in (10, 1000, 5 * MIB, 100):
        kept.resize_(size)
        seen.append([kept.untyped_storage().size(), brief()])
    kept.untyped_storage().resize_(0)
    seen.append(brief())
    assert error(lambda: kept.untyped_storage().resize_(-5))
    return seen
