"""Memory that sleeps and wakes, and the shapes in which other libraries offer that. Contents are compared."""
import os
import tempfile

import torch
from observe import MIB, error, raw
from scene import GRANULE, Run, scene

RUNS = (
    Run("contents", contents=True, gib=1),
    Run("growable", settings="expandable_segments:True", contents=True, gib=1),
)
ONLY = dict(allocators=(GRANULE,))


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
