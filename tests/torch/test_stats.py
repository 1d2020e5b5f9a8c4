"""Statistics, limits and the texts made of them."""
import tempfile
import warnings
from pathlib import Path

import allocators
import torch
from observe import MIB, brief, error, raw, stats
from scene import DEFAULT, EXPANDABLE, GRANULE, NATIVE, Run, release, scene

TUNED = Run(
    "tuned", settings="max_split_size_mb:32,garbage_collection_threshold:0.5,roundup_power2_divisions:[256:4,>:2]"
)
RUNS = (DEFAULT, EXPANDABLE, TUNED)


@scene(real=True)
def test_s01_bytes_move_with_each_tensor_and_return():
    before = torch.cuda.memory_allocated()
    steps, kept = [brief()], []
    for size in (1, 511, 512, 513, MIB - 1, MIB, MIB + 1, 3 * MIB, 10 * MIB, 10 * MIB + 1, 37 * MIB):
        kept.append(raw(size))
        steps.append(brief())
        assert torch.cuda.max_memory_allocated() >= torch.cuda.memory_allocated()
    while kept:
        kept.pop(len(kept) // 2)
        steps.append(brief())
    assert torch.cuda.memory_allocated() == before
    return steps


@scene(real=True)
def test_s02_a_small_tensor_counts_once_and_in_the_small_pool():
    before = stats()
    kept = raw(1024)
    after = stats()
    moved = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert moved["active.small_pool.current"] == moved["allocation.small_pool.current"] == 1
    assert not any("large_pool" in name for name in moved)
    del kept
    return moved


@scene(alone=True, real=True)
def test_s03_statistics_are_empty_before_the_device_is_initialised():
    assert not torch.cuda.is_initialized()
    assert torch.cuda.memory_stats() == {} and torch.cuda.memory_allocated() == 0
    assert not torch.cuda.is_initialized()
    torch.cuda.init()
    named = list(torch.cuda.memory_stats())
    assert len(named) == (123 if release() >= (2, 12) else 122) or any("private_pools" in name for name in named)
    return [named, list(torch.accelerator.memory_stats()), torch.cuda.memory_stats_as_nested_dict()]


@scene
def test_passes_over_all_streams_are_counted():
    def passes():
        return torch.cuda.memory_stats()["num_sync_all_streams"]

    def refused():
        return error(raw, 1 << 40).split(":")[0]

    seen = [passes()]
    torch.cuda.empty_cache()
    seen.append(passes())
    # A pool that held memory, one that was refused some, one that nothing was asked of, and one that is still in use.
    held, in_vain, idle, shared = (torch.cuda.MemPool() for _ in range(4))
    with torch.cuda.use_mem_pool(held):
        raw(3 * MIB)
    with torch.cuda.use_mem_pool(in_vain):
        seen.append(refused())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=shared.id):
        kept = raw(600)
    seen.append(passes())
    for pools in ([held], [in_vain], [idle], [shared]):
        del held, in_vain, idle, shared
        held = in_vain = idle = shared = None
    del pools
    seen.append(passes())
    torch.cuda.empty_cache()
    seen += [passes(), refused(), passes()]
    del graph, kept
    torch.cuda.empty_cache()
    return [*seen, passes()]


@scene
def test_a_device_that_is_not_there_is_named_with_the_hint():
    calls = (
        torch._C._cuda_memoryStats, torch._C._cuda_resetPeakMemoryStats, torch._C._cuda_resetAccumulatedMemoryStats,
        lambda device: torch._C._cuda_setMemoryFraction(0.5, device),
        lambda device: torch._C._cuda_releasePool(device, (0, 1)),
    )
    for device in (1, 5):
        for call in calls:
            said = error(call, device)
            assert said.startswith("builtins.RuntimeError: ") and "did you call init?" in said, said
            # Native writes the number as a character.
            assert f"Invalid device argument {device}: " in said or allocators.current() == "native", said


@scene(real=True)
def test_s04_resets_touch_their_part_only():
    kept = [raw(size) for size in (700, 3 * MIB, 30 * MIB)]
    del kept[1]
    seen = [stats()]
    torch.cuda.reset_peak_memory_stats()
    seen.append(stats())
    torch.cuda.reset_accumulated_memory_stats()
    seen.append(stats())
    assert seen[0]["allocated_bytes.all.peak"] > seen[1]["allocated_bytes.all.peak"]
    assert seen[1]["allocation.all.allocated"] > seen[2]["allocation.all.allocated"] == 0
    assert seen[2]["num_device_alloc"] == 0 and seen[2]["reserved_bytes.all.current"] > 0
    return seen


@scene
def test_s05_the_summary_has_natives_text_in_every_state():
    texts = [torch.cuda.memory_summary()]
    kept = [raw(3 * MIB), raw(100), raw(25 * MIB)]
    texts += [torch.cuda.memory_summary(), torch.cuda.memory_summary(abbreviated=True)]
    del kept[0]
    try:
        raw(1 << 40)
    except torch.OutOfMemoryError:
        texts.append(torch.cuda.memory_summary())
    assert len(texts) == 4 and len(torch.cuda.memory_snapshot()) > 0
    assert texts[3].splitlines()[3].split("|")[1].split() == ["CUDA", "OOMs:", "1"]
    return texts


@scene(real=True)
def test_s06_requested_bytes_are_those_asked_for():
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    kept = [raw(size) for size in (1, 700, MIB + 3, 30 * MIB + 5)]
    assert torch.cuda.memory_stats()["requested_bytes.all.current"] - before == sum(t.numel() for t in kept)
    return stats()


@scene(alone=True, runs=(DEFAULT,), real=True)
def test_s07_roundup_divisions_can_be_set_and_reset():
    sizes = (513, 1025, 1537, 9 * MIB // 8, 300 * MIB // 256, 257 * MIB)
    seen = []
    for text in ("roundup_power2_divisions:4", "roundup_power2_divisions:[64:8,128:2,>:1]", "max_split_size_mb:40"):
        torch._C._accelerator_setAllocatorSettings(text)
        for size in sizes:
            before = torch.cuda.memory_allocated()
            kept = raw(size)
            seen.append([text, size, torch.cuda.memory_allocated() - before])
            del kept
    assert seen[3][2] == 1310720 and seen[-3][2] == 9 * MIB // 8
    return [seen, torch.cuda.memory._snapshot()["allocator_settings"]]


@scene(real=True)
def test_s08_a_fraction_must_be_a_float_from_0_to_1_and_is_read_back():
    set_fraction = torch.cuda.set_per_process_memory_fraction
    seen = [error(set_fraction, 1), error(set_fraction, "0.5"), error(set_fraction, -0.1), error(set_fraction, 1.5)]
    assert seen[0].startswith("builtins.TypeError") and seen[2].startswith("builtins.ValueError")
    for fraction in (0.5, 0.123, 1.0):
        set_fraction(fraction)
        seen.append(torch.cuda.get_per_process_memory_fraction())
    assert seen[-1] == 1.0 and abs(seen[-2] - 0.123) < 1e-6
    return seen


@scene
def test_s09_a_fraction_is_enforced():
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(0.5)
    try:
        kept = raw(int(total * 0.499))
        said = error(raw, total // 2)
        assert said.startswith("torch.OutOfMemoryError") and "2.00 GiB allowed" in said
        del kept
        return [said, brief()]
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@scene(alone=True, runs=(Run("fraction", settings="per_process_memory_fraction:0.25"),))
def test_s10_a_fraction_of_the_environment_shows_and_holds():
    torch.cuda.init()
    assert torch.cuda.get_per_process_memory_fraction() == 0.25
    total = torch.cuda.mem_get_info()[1]
    return [error(raw, total // 2), torch.cuda.get_per_process_memory_fraction(), stats()]


@scene(alone=True, runs=(DEFAULT,), since=(2, 12))
def test_s11_a_request_over_the_fraction_is_refused_before_the_driver_is_asked():
    torch.cuda.init()
    # Set later, the fraction counts for this refusal only.
    torch._C._accelerator_setAllocatorSettings("throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5")
    total = torch.cuda.mem_get_info()[1]
    kept = raw(total // 4)
    said = error(raw, total // 2)
    assert "preemptively rejected" in said
    more = raw(MIB)
    after = stats()
    assert after["num_oom_rejections"] == 1 and after["num_ooms"] == 0
    del kept, more
    return [said, after]


@scene(real=True)
def test_s12_device_calls_are_counted():
    before = torch.cuda.memory_stats()["num_device_alloc"]
    kept = [raw(30 * MIB), raw(100)]
    assert torch.cuda.memory_stats()["num_device_alloc"] == before + 2
    seen = [brief()]
    del kept
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["num_device_free"] >= 2
    return [*seen, brief()]


@scene(real=True, since=(2, 13))
def test_s13_each_private_pool_has_its_bytes():
    pool = torch.cuda.MemPool()
    name = f"reserved_bytes_by_private_pools.{pool.id[0]}_{pool.id[1]}.all.current"
    with torch.cuda.use_mem_pool(pool):
        kept = [raw(100), raw(30 * MIB)]
    seen = [stats()]
    assert seen[0][name] > 30 * MIB
    del kept, pool
    torch.cuda.empty_cache()
    seen.append(stats())
    assert seen[1][name] == 0
    torch.cuda.reset_peak_memory_stats()
    return [*seen, stats()]


@scene
def test_memory_info_is_the_drivers():
    seen = [torch.cuda.mem_get_info()]
    kept = [raw(30 * MIB), raw(5)]
    seen.append(torch.cuda.mem_get_info())
    assert seen[0][0] - seen[1][0] >= 30 * MIB and torch.accelerator.get_memory_info() == seen[1]
    assert seen[1][1] - seen[1][0] == torch.cuda.memory_reserved()
    del kept
    torch.cuda.empty_cache()
    return [*seen, torch.cuda.mem_get_info()]


@scene(alone=True, install=False, allocators=(GRANULE,), env={"GRANULE_LOOKALIKE": "h100,personality=uma"})
def test_memory_info_is_the_systems_where_the_device_shares_the_hosts_memory():
    import granule_torch

    with tempfile.TemporaryDirectory() as root:
        meminfo = Path(root, "proc", "meminfo")
        meminfo.parent.mkdir()

        def available(mib):
            meminfo.write_text(f"MemTotal: 4194304 kB\nMemFree: 1024 kB\nMemAvailable: {mib << 10} kB\n", encoding="ascii")

        available(3700)
        granule_torch.enable(settings=f"system_root:{root}")
        driver = torch.cuda.memory.mem_get_info.__wrapped__()
        assert driver[1] == 4 << 30 and driver[0] < 3600 * MIB, "the driver counts the page cache as taken"
        for mib in (3700, 3500):
            available(mib)
            assert torch.cuda.mem_get_info() == torch.accelerator.get_memory_info() == (mib * MIB, 4 << 30)
        available(1)
        assert torch.cuda.mem_get_info() == driver, "the driver knows of more"
        torch.cuda.set_per_process_memory_fraction(0.25)
        available(3700)
        kept = raw(900 * MIB)
        assert "1024.00 MiB allowed" in error(raw, 200 * MIB) and f"{3700 / 1024:.2f} GiB is free" in error(raw, 200 * MIB)
        del kept


@scene(real=True, since=(2, 13))
def test_the_functions_of_torch_accelerator():
    accelerator = torch.accelerator
    kept = [raw(3 * MIB), raw(30 * MIB)]
    del kept[0]
    seen = []
    for _ in range(2):
        seen += [accelerator.memory_allocated(), accelerator.max_memory_allocated()]
        seen += [accelerator.memory_reserved(), accelerator.max_memory_reserved(), dict(accelerator.memory_stats())]
        accelerator.reset_peak_memory_stats()
        accelerator.reset_accumulated_memory_stats()
        accelerator.empty_cache()
    assert seen[0] == torch.cuda.memory_allocated() and seen[1] > seen[0]
    accelerator.empty_host_cache()
    assert accelerator.memory._snapshot()["segments"]
    return seen


@scene(real=True)
def test_figures_have_functions_and_old_names():
    cuda = torch.cuda
    kept = [raw(3 * MIB), raw(30 * MIB)]
    del kept[1]
    seen = [cuda.memory_allocated(), cuda.max_memory_allocated(), cuda.memory_reserved(), cuda.max_memory_reserved()]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen += [cuda.memory_cached(), cuda.max_memory_cached()]
        cuda.reset_max_memory_allocated()
        seen.append(cuda.max_memory_allocated())
        cuda.reset_max_memory_cached()
        seen.append(cuda.max_memory_reserved())
    assert seen[1] > seen[0] == seen[6] and len(said) >= 4
    return [seen, sorted(str(warning.message) for warning in said), cuda.list_gpu_processes(), kept[0].numel()]


@scene(runs=(DEFAULT,), real=True)
def test_pinned_host_memory_keeps_its_statistics():
    kept = torch.empty(10240, dtype=torch.float32, pin_memory=True)
    figures = torch.cuda.host_memory_stats()
    assert figures["allocated_bytes.current"] >= 40960 and torch.cuda.host_memory_stats_as_nested_dict()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    timeless = {name: value for name, value in torch.cuda.host_memory_stats().items() if "time" not in name}
    del kept
    torch._C._host_emptyCache()
    return timeless


# --- on machines that users have: personalities of the simulated drivers -------------------------------------------------


def on(personality, **options):
    return Run(personality, env=(("GRANULE_LOOKALIKE", f"h100,personality={personality}"),), **options)


WSL2 = on("wsl2", settings="expandable_segments:True")
# PyTorch's own expandable segments believe the driver's attribute, and die there.
VGPU = on("vgpu", settings="expandable_segments:True", without=(NATIVE,))
TEGRA = on("tegra", settings="expandable_segments:True", without=(NATIVE,))
UMA = on("uma")


@scene(runs=(on("driver-12.4"), on("cc"), UMA))
def test_a_step_of_training_is_the_same_there():
    return trained()


@scene(runs=(WSL2, VGPU, TEGRA), allocators=(GRANULE,))
def test_a_step_of_training_is_served_where_memory_cannot_be_made_as_promised():
    trained()


def trained():
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    seen = []
    for size in (64, 256, 32):
        model(torch.empty(size, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        seen.append(stats())
    torch.cuda.empty_cache()
    return [*seen, stats()]


@scene(runs=(UMA,), allocators=(GRANULE,))
def test_what_can_be_had_of_shared_memory_is_what_the_system_says():
    kept = raw(64 * MIB)
    counted, total = torch.cuda.cudart().cudaMemGetInfo(0)
    free, same = torch.cuda.mem_get_info()
    assert same == total and torch.cuda.mem_get_info("cuda:0") == torch.accelerator.get_memory_info(0) == (free, total)
    assert free > counted + 500 * MIB, "a page cache, which the driver counts as taken, can be had"
    torch.cuda.set_per_process_memory_fraction(0.25)
    assert "is free" in error(lambda: raw(total // 2))
    del kept


@scene(runs=(on("driver-12.4"),))
def test_what_is_free_of_memory_of_its_own_is_what_the_driver_says():
    kept = raw(64 * MIB)
    assert torch.cuda.mem_get_info() == torch.cuda.cudart().cudaMemGetInfo(0)
    return [torch.cuda.mem_get_info(), len(kept)]
