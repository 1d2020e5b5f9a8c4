"""What the rig must do, in the configuration of the environment; run it under fakegpu-run, or selftest-all.sh for
all configurations.  Prints one line per check, and exits with 1 at the first that fails.
"""
import os
import pickle
import tempfile

import torch

import selftest_driver
import selftest_ipc

torch.backends.cuda.enable_cudnn_sdp(False)
GiB = 2**30
cap = int(float(os.environ.get("FAKE_GPU_MEM_GB", 80)) * GiB)


def check(name, ok):
    print(("ok   " if ok else "FAIL ") + name)
    if not ok:
        raise SystemExit(1)


def training():
    check("torch sees the device", torch.cuda.is_available() and "Fake" in torch.cuda.get_device_name(0))
    check("device count", torch.cuda.device_count() == int(os.environ.get("FAKE_GPU_COUNT", 1)))
    check("capacity", torch.cuda.mem_get_info()[1] == cap == torch.cuda.get_device_properties(0).total_memory)
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
    m = torch.nn.Sequential(torch.nn.Linear(1000, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 10)).cuda()
    o = torch.optim.AdamW(m.parameters())
    for _ in range(3):
        loss = m(torch.randn(333, 1000, device="cuda")).square().mean()
        loss.backward()
        o.step()
        o.zero_grad()
    check("training loop", loss.item() == 0.0)
    s = torch.cuda.memory_stats()
    check("statistics", 0 < s["requested_bytes.all.peak"] <= s["allocated_bytes.all.peak"] <= s["reserved_bytes.all.peak"]
          and s["reserved_bytes.all.current"] == cap - torch.cuda.mem_get_info()[0])
    with tempfile.TemporaryDirectory() as d:
        torch.cuda.memory._dump_snapshot(d + "/s.pickle")
        snap = pickle.load(open(d + "/s.pickle", "rb"))
    t = snap["device_traces"][0]
    check("snapshot with frames", len(t) > 50 and any(e["frames"] for e in t) and any(e["size"] % 512 for e in t if e["action"] == "alloc"))
    c = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7), torch.nn.BatchNorm2d(64), torch.nn.Conv2d(64, 8, 3)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        c(torch.randn(8, 3, 64, 64, device="cuda")).float().sum().backward()
    check("convolution through cuDNN", torch.backends.cudnn.enabled and torch.backends.cudnn.is_available())
    q = torch.randn(2, 8, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    check("attention", q.grad is not None)
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    with torch.cuda.stream(side):
        y = torch.randn(1000, 1000, device="cuda")
    main.wait_stream(side)
    y.record_stream(main)
    p = y.data_ptr()
    del y
    torch.empty(1, device="cuda")
    with torch.cuda.stream(side):
        z = torch.empty(1000, 1000, device="cuda")
    check("second stream, record_stream", z.data_ptr() == p or int(os.environ.get("FAKE_GPU_EVENT_LAG", 0)) > 0)
    lin, inp = torch.nn.Linear(1024, 1024).cuda(), torch.randn(64, 1024, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        for _ in range(3):
            lin(inp).sum().backward()
    main.wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        r = lin(inp).sum()
    g.replay()
    check("CUDA graph with a pool of its own", any(tuple(x["segment_pool_id"]) != (0, 0) for x in torch.cuda.memory_snapshot()))
    big = []
    try:
        for _ in range(8):
            big.append(torch.empty(cap // 4, dtype=torch.uint8, device="cuda"))
        oom = False
    except torch.OutOfMemoryError:
        oom = True
    check("out of memory at the capacity", oom and len(big) == 3 and torch.cuda.memory_stats()["num_ooms"] == 1)
    del big
    torch.cuda.empty_cache()
    s = torch.cuda.memory_stats()
    check("empty_cache gives memory back", s["reserved_bytes.all.current"] == cap - torch.cuda.mem_get_info()[0] < GiB)
    check("retry counted", s["num_alloc_retries"] >= 1)
    if torch.cuda.device_count() > 1:
        w = torch.ones(1 << 20, device="cuda:1").to("cuda:0")
        check("second device", torch.cuda.memory_allocated(1) == 0 and torch.cuda.max_memory_allocated(1) > 0)


if __name__ == "__main__":
    training()
    selftest_ipc.run(check)
    driver = selftest_driver.Library("libcuda.so.1")
    check("no call that a correct program does not make", driver.try_("fakegpu_counter_named", b"bad_call") == 0)
    selftest_driver.run(check)
    print("all good")
