"""Memory that sleeps and wakes, and the shapes in which other libraries offer that. Contents are compared."""
import os
import sys
import tempfile
import types
import warnings
from pathlib import Path

import torch
from observe import MIB, error, raw
from scene import GRANULE, Run, scene

RUNS = (
    Run("contents", contents=True, gib=1),
    Run("growable", settings="expandable_segments:True", contents=True, gib=1),
)
ONLY = dict(allocators=(GRANULE,))
TWO = (Run("two devices", contents=True, gib=1, devices=2),)


def pattern(size, start):
    once = (torch.arange(256) * 5 + start).to(torch.uint8)
    return once.repeat(size // 256 + 1)[:size]


def filled(size, start):
    return pattern(size, start).to("cuda")


def same(tensor, start):
    return bool((tensor.cpu() == pattern(tensor.numel(), start)).all())


def free_bytes():
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info()[0]


@scene(**ONLY, alone=True, runs=RUNS[:1])
def test_backups_are_among_pytorchs_pinned_memory():
    import granule_torch

    def held():
        return torch.cuda.host_memory_stats()["allocated_bytes.current"]

    with granule_torch.region(tag="weights"):
        kept = filled(40 * MIB, 1)
    assert held() == 0
    slept = granule_torch.sleep("weights", backup="pinned")
    assert 40 * MIB <= slept.backup_held == held() < 48 * MIB, held()
    granule_torch.wake("weights")
    assert held() == 0 and same(kept, 1)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        loss = (kept.float().requires_grad_() ** 2).sum()
    assert held() >= 4 * kept.numel()
    loss.backward()


@scene(**ONLY)
def test_contents_come_back_at_the_same_addresses():
    import granule_torch

    with granule_torch.region(tag="weights"):
        kept = [filled(5 * MIB, 1), filled(700, 2), filled(40 * MIB, 3)]
    outside = filled(3 * MIB, 4)
    addresses, before = [tensor.data_ptr() for tensor in kept], free_bytes()
    with tempfile.TemporaryDirectory() as folder:
        for backup in ("pinned", "pinned-keep", folder):
            slept = granule_torch.sleep("weights", backup=backup)
            assert slept.slept >= 45 * MIB and slept.freed >= 45 * MIB and slept.kept == 0
            assert free_bytes() >= before + 45 * MIB and same(outside, 4)
            woken = granule_torch.wake("weights")
            assert woken.restored >= 45 * MIB and woken.dropped == 0
            assert [tensor.data_ptr() for tensor in kept] == addresses
            assert [same(tensor, number) for number, tensor in enumerate(kept, 1)] == [True] * 3
        assert os.listdir(folder) == []
    assert "Backups of sleeping memory" in granule_torch.report(), "one is kept"
    granule_torch.drop_backups()
    assert "Backups of sleeping memory" not in granule_torch.report()
    granule_torch.drop_region("weights")


@scene(**ONLY)
def test_tags_sleep_and_wake_by_themselves():
    import granule_torch

    with granule_torch.region(tag="weights", priority=5):
        weights = filled(20 * MIB, 1)
    with granule_torch.region(tag="cache"):
        cache = filled(60 * MIB, 2)
    assert granule_torch.region_bytes() >= 80 * MIB > granule_torch.region_bytes("weights") >= 20 * MIB
    start = free_bytes()
    granule_torch.sleep(["weights"], backup="pinned")
    granule_torch.sleep(["cache"], backup="discard")
    assert free_bytes() >= start + 80 * MIB
    # The memory is another's meanwhile.
    other = filled(100 * MIB, 9)
    del other
    torch.cuda.empty_cache()
    granule_torch.wake(["weights"])
    assert same(weights, 1) and start + 60 * MIB <= free_bytes() < start + 80 * MIB
    woken = granule_torch.wake(["cache"])
    assert woken.woken >= 60 * MIB and woken.restored == 0 and not same(cache, 2)
    cache.copy_(pattern(60 * MIB, 7))
    assert same(cache, 7)
    for tag in ("weights", "cache"):
        granule_torch.drop_region(tag)


@scene(**ONLY)
def test_statistics_and_snapshots_while_asleep():
    import granule_torch

    with granule_torch.region(tag="model"):
        kept = filled(30 * MIB, 1)
    before = torch.cuda.memory_stats()
    with granule_torch.sleeping("model") as slept:
        during = torch.cuda.memory_stats()
        assert slept.freed >= 30 * MIB
        assert before["reserved_bytes.all.current"] - during["reserved_bytes.all.current"] >= 30 * MIB
        # Whole granules of a large segment: two of 20 MiB.
        assert "asleep 40.0 MiB" in granule_torch.report() and torch.cuda.memory_summary()
        torch.cuda.memory._snapshot()
        more = raw(10 * MIB)
        del more
    assert torch.cuda.memory_stats()["reserved_bytes.all.current"] >= before["reserved_bytes.all.current"]
    assert same(kept, 1)
    granule_torch.drop_region("model")


@scene(**ONLY)
def test_waking_without_room_is_refused_and_can_be_done_again():
    import granule_torch

    with granule_torch.region(tag="big"):
        kept = filled(600 * MIB, 1)
    granule_torch.sleep("big")
    other = raw(700 * MIB)
    said = error(granule_torch.wake, "big")
    assert "GranuleError" in said
    del other
    torch.cuda.empty_cache()
    granule_torch.wake("big")
    assert same(kept, 1)
    granule_torch.drop_region("big")


@scene(**ONLY)
def test_a_region_can_be_entered_again_and_memory_freed_while_asleep():
    import granule_torch

    with granule_torch.region(tag="again") as pool:
        kept = [filled(10 * MIB, 1)]
    with granule_torch.region(tag="again") as same_pool:
        kept.append(filled(10 * MIB, 2))
    assert pool is same_pool
    granule_torch.sleep("again")
    kept.pop(0)
    granule_torch.wake("again")
    assert same(kept[0], 2)
    with granule_torch.region(tag="again"):
        more = filled(10 * MIB, 3)
    assert same(more, 3)
    granule_torch.drop_region("again")


@scene(**ONLY)
def test_the_profiler_follows_memory_that_is_freed_while_asleep():
    import granule_torch

    with granule_torch.region(tag="followed"):
        kept = raw(8 * MIB)
    granule_torch.sleep("followed")
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]):
        del kept
    granule_torch.wake("followed")
    granule_torch.drop_region("followed")
    torch.cuda.empty_cache()


@scene(**ONLY)
def test_training_goes_on_after_a_sleep():
    import granule_torch

    with granule_torch.region(tag="train"):
        net = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.Linear(2048, 8)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        net(torch.ones(64, 512, device="cuda")).sum().backward()
        optimizer.step()
    kept = {name: value.cpu().clone() for name, value in net.state_dict().items()}
    for _ in range(3):
        with granule_torch.sleeping("train"):
            pass
        assert all(torch.equal(value.cpu(), kept[name]) for name, value in net.state_dict().items())
        net(torch.ones(64, 512, device="cuda")).sum().backward()
        optimizer.step()
        kept = {name: value.cpu().clone() for name, value in net.state_dict().items()}
    granule_torch.drop_region("train")


@scene(**ONLY)
def test_wrong_arguments_are_named():
    import granule_torch

    with granule_torch.region("weights"):
        weights = filled(3 * MIB, 1)
    said = error(granule_torch.sleep, "wieghts")
    assert "GranuleError" in said and "'wieghts'" in said and "'weights'" in said
    for backup in ("pined", "", "/no/such/directory"):
        assert "ValueError" in error(granule_torch.sleep, "weights", backup=backup)
    for tag in ("", 3, None):
        assert "TypeError" in error(granule_torch.region(tag).__enter__)
    assert same(weights, 1)
    granule_torch.drop_region("weights")


@scene(**ONLY)
def test_regions_pause_and_resume_by_tag():
    from granule_torch.adapters.torch_memory_saver import torch_memory_saver as saver

    with saver.region(tag="weights", enable_cpu_backup=True):
        weights = filled(50 * MIB, 1)
    with saver.region():
        cache = filled(30 * MIB, 2)
        with saver.disable():
            outside = filled(10 * MIB, 3)
    before = free_bytes()
    saver.pause()
    saver.pause()
    assert free_bytes() >= before + 80 * MIB and same(outside, 3)
    saver.resume("weights")
    assert same(weights, 1)
    saver.resume()
    saver.resume()
    cache.copy_(pattern(30 * MIB, 8))
    assert same(cache, 8)


@scene(**ONLY)
def test_memory_of_graphs_keeps_its_contents():
    import granule_torch
    from granule_torch.adapters.torch_memory_saver import torch_memory_saver as saver

    source, graph = filled(MIB, 5), torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag="graph"):
        inside = source.clone()
    graph.replay()
    assert same(inside, 5)
    before = free_bytes()
    saver.pause("graph")
    assert free_bytes() > before
    saver.resume("graph")
    assert same(inside, 5)
    source.copy_(pattern(MIB, 7))
    graph.replay()
    assert same(inside, 7)
    said = error(saver.cuda_graph(graph, tag="graph", enable_cpu_backup=False).__enter__)
    assert "ValueError" in said and "contents of graphs are kept" in said
    said = error(saver.cuda_graph(graph, tag="graph", pool=(0, 12345)).__enter__)
    assert "ValueError" in said and "leave pool out" in said
    # Nor is it given up by the way below.
    said = error(granule_torch.sleep, "torch_memory_saver/graph/graph", backup="discard")
    assert "GranuleError" in said and "serves captured graphs" in said
    assert same(inside, 7)


@scene(**ONLY)
def test_memory_that_a_graph_only_reads_may_be_discarded():
    from granule_torch.adapters.torch_memory_saver import torch_memory_saver as saver

    with saver.region(tag="kv_cache"):
        cache = filled(4 * MIB, 1)
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(graph, tag="cuda_graph"):
        read = cache.clone()
    before = free_bytes()
    saver.pause("kv_cache")
    assert free_bytes() >= before + 4 * MIB
    saver.pause("cuda_graph")
    saver.resume("cuda_graph")
    saver.resume("kv_cache")
    cache.copy_(pattern(4 * MIB, 9))
    graph.replay()
    assert same(read, 9)


@scene(**ONLY)
def test_backups_can_be_read_and_kept():
    from granule_torch.adapters.torch_memory_saver import TorchMemorySaver

    saver = TorchMemorySaver()
    assert saver.retain_cpu_backup is False
    with saver.region(tag="read", enable_cpu_backup=True, cpu_backup_backend="mmap"):
        kept = torch.arange(1000, dtype=torch.int64).to("cuda").view(10, 100)
        large = filled(5 * MIB, 3)
    with saver.region(tag="lost"):
        lost = filled(MIB, 4)
    assert saver.get_cpu_backup(kept) is None
    saver.pause()
    there = saver.get_cpu_backup(kept)
    assert torch.equal(there, torch.arange(1000).view(10, 100)) and there.device.type == "cpu"
    assert torch.equal(saver.get_cpu_backup(kept[3:5], zero_copy=True), there[3:5])
    assert same(saver.get_cpu_backup(large), 3)
    assert saver.get_cpu_backup(lost) is None
    assert "ValueError" in error(saver.get_cpu_backup, kept.t())
    saver.resume()
    assert saver.get_cpu_backup(kept) is None and same(large, 3)
    saver.retain_cpu_backup = True
    saver.pause("read")
    saver.resume("read")
    from granule_torch import _enable, _library

    held = _library.c_uint64()
    _library.check(_library.load().granule_backup_bytes(_enable.engine(), _library.byref(held)))
    assert held.value >= 5 * MIB
    saver.retain_cpu_backup = False
    _library.check(_library.load().granule_backup_bytes(_enable.engine(), _library.byref(held)))
    assert held.value == 0 and same(large, 3)


@scene(**ONLY)
def test_contents_wait_on_disk():
    from granule_torch.adapters.torch_memory_saver import TorchMemorySaver

    saver = TorchMemorySaver()
    said = error(saver.region(tag="disk", enable_disk_backup=True).__enter__)
    assert "GranuleError" in said and "set_disk_backup_dir" in said
    with tempfile.TemporaryDirectory() as folder:
        saver.set_disk_backup_dir(os.path.join(folder, "made"))
        with saver.region(tag="disk", enable_disk_backup=True):
            tensor = filled(5 * MIB, 6)
        saver.pause("disk")
        assert same(saver.get_cpu_backup(tensor), 6)
        saver.resume("disk")
        assert same(tensor, 6) and os.listdir(folder) == ["made"]


@scene(**ONLY)
def test_what_the_library_refuses_is_refused():
    from granule_torch.adapters.torch_memory_saver import TorchMemorySaver

    saver = TorchMemorySaver()
    assert saver.enabled
    for mode in ("preload", "torch"):
        saver.hook_mode = mode
        assert saver.hook_mode == mode
    assert "'preloaded'" in error(setattr, saver, "hook_mode", "preloaded")
    both = dict(enable_cpu_backup=True, enable_disk_backup=True)
    for wrong in (both, dict(cpu_backup_backend="mmap"), dict(enable_cpu_backup=True, cpu_backup_backend="tape")):
        assert "ValueError" in error(saver.region(**wrong).__enter__)
    assert "in none" in error(saver.disable().__enter__)
    said = error(saver.pause, "wieghts")
    assert "'wieghts'" in said and "GranuleError" in said
    saver.memory_margin_bytes = 512 * MIB
    assert "OutOfMemoryError" in error(torch.empty, 700 * MIB, dtype=torch.uint8, device="cuda")
    saver.memory_margin_bytes = 0
    assert torch.empty(700 * MIB, dtype=torch.uint8, device="cuda").numel() == 700 * MIB


@scene(alone=True, **ONLY)
def test_the_margin_counts_what_others_hold():
    from granule_torch.adapters.torch_memory_saver import TorchMemorySaver

    def another(size):
        torch.cuda.caching_allocator_enable(False)
        try:
            return raw(size)
        finally:
            torch.cuda.caching_allocator_enable(True)

    saver = TorchMemorySaver()
    others = [another(300 * MIB)]
    saver.memory_margin_bytes = 512 * MIB
    assert "OutOfMemoryError" in error(raw, 300 * MIB)
    kept = raw(60 * MIB)
    assert free_bytes() >= 512 * MIB
    others.append(another(100 * MIB))
    with saver.region(tag="late"):
        assert "OutOfMemoryError" in error(raw, 100 * MIB)
    saver.memory_margin_bytes = 0
    assert kept.numel() + raw(300 * MIB).numel() == 360 * MIB


@scene(alone=True, runs=TWO, **ONLY)
def test_regions_concern_every_device_in_use():
    import granule_torch
    from granule_torch.adapters.torch_memory_saver import torch_memory_saver as saver

    torch.ones(1, device="cuda:1")
    with saver.region(tag="both", enable_cpu_backup=True):
        here, there = filled(20 * MIB, 1), pattern(20 * MIB, 2).to("cuda:1")
        with saver.disable():
            outside = pattern(20 * MIB, 3).to("cuda:1")
    before = [torch.cuda.mem_get_info(device)[0] for device in range(2)]
    saver.pause("both")
    assert all(torch.cuda.mem_get_info(device)[0] - before[device] >= 20 * MIB for device in range(2))
    assert torch.cuda.current_device() == 0 and same(outside, 3)
    saver.resume("both")
    assert same(here, 1) and same(there, 2)
    assert granule_torch.region_bytes("torch_memory_saver/backup/both") == 40 * MIB


@scene(alone=True, runs=TWO, **ONLY)
def test_a_device_that_is_new_in_a_region_is_named():
    import granule_torch

    def warned():
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with granule_torch.region("late"):
                kept = pattern(3 * MIB, 1).to("cuda:1")
        assert same(kept, 1)
        return [str(warning.message) for warning in said]

    first = warned()
    assert len(first) == 1 and all(word in first[0] for word in ("cuda:0", "cuda:1", "'late'")), first
    assert warned() == []


@scene(alone=True, **ONLY)
def test_it_takes_the_librarys_place():
    import torch_memory_saver as library
    from granule_torch.adapters import torch_memory_saver as ours

    theirs = library.torch_memory_saver
    ours.install()
    ours.install()
    from torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver

    assert torch_memory_saver is ours.torch_memory_saver is not theirs
    assert TorchMemorySaver is ours.TorchMemorySaver
    with torch_memory_saver.region(tag="a", enable_cpu_backup=True):
        tensor = filled(3 * MIB, 2)
    torch_memory_saver.pause("a")
    torch_memory_saver.resume("a")
    assert same(tensor, 2)
    before = dict(os.environ)
    with configure_subprocess():
        assert (os.environ["GRANULE_TORCH"], os.environ[ours.VARIABLE]) == ("1", "1")
    assert dict(os.environ) == before
    # Everything that the library offers on its object is there.
    missing = [name for name in vars(type(theirs)) if not name.startswith("_") and not hasattr(TorchMemorySaver, name)]
    assert missing == []


@scene(alone=True, **ONLY)
def test_a_library_that_holds_memory_is_left_alone():
    import torch_memory_saver as library
    from granule_torch.adapters import torch_memory_saver as ours

    theirs = library.torch_memory_saver
    theirs._impl = object()
    said = error(ours.install)
    assert "holds memory already" in said and library.torch_memory_saver is theirs
    theirs._impl = None
    os.environ["TMS_INIT_ENABLE"] = "1"
    said = error(ours.install)
    assert "remove the variable" in said and library.torch_memory_saver is theirs
    del os.environ["TMS_INIT_ENABLE"]
    del library.configure_subprocess
    said = error(ours.install)
    assert "0.0.10 is here, which has no configure_subprocess" in said and library.torch_memory_saver is theirs


def sglang():
    """SGLang's plugin modules: the real ones, where its files are, over stand-ins for what they import; else the same calls."""
    found = {}
    for path in map(Path, sys.path):
        for name in ("plugins/hook_registry", "utils/torch_memory_saver_adapter"):
            file = path / "sglang/srt" / f"{name}.py"
            if file.is_file():
                found.setdefault(name.replace("/", "."), file.read_text(encoding="utf-8"))
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins", "sglang.srt.utils", "sglang.srt.utils.common"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["sglang.srt.utils.common"].is_xpu = lambda: False
    for name, text in (found or STAND_INS).items():
        module = types.ModuleType(f"sglang.srt.{name}")
        exec(compile(text, name, "exec"), module.__dict__)
        sys.modules[module.__name__] = module
        parent, _, child = module.__name__.rpartition(".")
        setattr(sys.modules[parent], child, module)
    return sys.modules["sglang.srt.plugins.hook_registry"], sys.modules["sglang.srt.utils.torch_memory_saver_adapter"]


STAND_INS = {
    "plugins.hook_registry": """
import enum, importlib
class HookType(enum.Enum):
    AROUND = 1
class HookRegistry:
    _hooks = []
    @classmethod
    def register(cls, target, hook, hook_type):
        cls._hooks.append((target, hook))
    @classmethod
    def apply_hooks(cls):
        for target, hook in cls._hooks:
            module, owner, name = target.rsplit(".", 2)
            owner = getattr(importlib.import_module(module), owner)
            original = getattr(owner, name)
            setattr(owner, name, staticmethod(lambda *a, hook=hook, original=original, **k: hook(original, *a, **k)))
""",
    "utils.torch_memory_saver_adapter": """
class TorchMemorySaverAdapter:
    @staticmethod
    def create(enable):
        return TorchMemorySaverAdapter()
    def check_validity(self, caller_name):
        assert self.enabled
    def configure_subprocess(self): raise NotImplementedError
    def region(self, tag, enable_cpu_backup=False): raise NotImplementedError
    def cuda_graph(self, **kwargs): raise NotImplementedError
    def disable(self): raise NotImplementedError
    def pause(self, tag): raise NotImplementedError
    def resume(self, tag): raise NotImplementedError
    enabled = False
""",
}


@scene(alone=True, env={"GRANULE_TORCH_MEMORY_SAVER": "1"}, **ONLY)
def test_sglang_takes_it_by_its_plugins():
    hooks, adapters = sglang()
    from granule_torch.adapters import sglang as plugin

    plugin.register()
    hooks.HookRegistry.apply_hooks()
    saver = adapters.TorchMemorySaverAdapter.create(enable=True)
    assert isinstance(saver, adapters.TorchMemorySaverAdapter) and saver.enabled
    saver.check_validity("test")
    with saver.configure_subprocess():
        pass
    with saver.region("weights", enable_cpu_backup=True):
        weights = filled(20 * MIB, 1)
    with saver.region("kv_cache"):
        cache = filled(10 * MIB, 2)
        with saver.disable():
            outside = filled(MIB, 3)
    graph = torch.cuda.CUDAGraph()
    with saver.cuda_graph(cuda_graph=graph, tag="cuda_graph"):
        read = cache.clone()
    before = free_bytes()
    # In SGLang's order.
    for tag in ("kv_cache", "weights", "cuda_graph"):
        saver.pause(tag)
    assert free_bytes() >= before + 30 * MIB and same(outside, 3)
    for tag in ("cuda_graph", "weights", "kv_cache"):
        saver.resume(tag)
    assert same(weights, 1)
    cache.copy_(pattern(10 * MIB, 4))
    graph.replay()
    assert same(read, 4)
    assert not adapters.TorchMemorySaverAdapter.create(enable=False).enabled


@scene(alone=True, env={"GRANULE_TORCH_MEMORY_SAVER": "1"}, **ONLY)
def test_another_sglang_is_named_and_left_alone():
    hooks, adapters = sglang()
    adapters.TorchMemorySaverAdapter.evict = lambda self: None
    import logging

    from granule_torch.adapters import sglang as plugin

    said = []
    logging.getLogger("sglang.granule_torch").addFilter(lambda record: said.append(record.getMessage()))
    plugin.register()
    assert len(said) == 1 and "made for SGLang 0.5.23" in said[0] and "evict" in said[0]
    assert not hooks.HookRegistry._hooks
