"""What ``torch.cuda`` has beyond ``torch.accelerator``, under the device's own module; graphs of ``torch.accelerator``."""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from .support import MIB, NAME

def device() -> Any:
    return torch.get_device_module(NAME)


def raw(mebibytes: int, on: str = NAME) -> torch.Tensor:
    return torch.empty(mebibytes * MIB, dtype=torch.uint8, device=on)


# --- a share of the device --------------------------------------------------------------------------------------------


def test_a_share_is_read_back_and_enforced() -> None:
    total = device().mem_get_info()[1]
    assert device().get_per_process_memory_fraction() == 1.0
    device().set_per_process_memory_fraction(64 * MIB / total)
    try:
        assert device().get_per_process_memory_fraction(0) == 64 * MIB / total
        kept = raw(40)
        with pytest.raises(torch.OutOfMemoryError):
            raw(40)
        del kept
    finally:
        device().set_per_process_memory_fraction(1.0)
    assert raw(80).numel() == 80 * MIB


@pytest.mark.parametrize(("fraction", "error"), [(1, TypeError), ("0.5", TypeError), (-0.1, ValueError), (1.5, ValueError)])
def test_a_share_is_a_float_from_0_to_1(fraction: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        device().set_per_process_memory_fraction(fraction)
    assert device().get_per_process_memory_fraction() == 1.0


def test_each_device_has_its_own_share(second_device: str) -> None:
    device().set_per_process_memory_fraction(0.5, second_device)
    try:
        assert [device().get_per_process_memory_fraction(index) for index in (0, 1)] == [1.0, 0.5]
    finally:
        device().set_per_process_memory_fraction(1.0, second_device)


# --- settings ---------------------------------------------------------------------------------------------------------


def by_the_old_name(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.cuda.memory._set_allocator_settings(text)


@pytest.mark.parametrize("change", [torch._C._accelerator_setAllocatorSettings, by_the_old_name])
def test_settings_reach_the_device_by_both_names(change: Callable[[str], None]) -> None:
    def growable() -> set[bool]:
        kept = raw(30)
        segments = device().memory_snapshot(False)["segments"]
        del kept
        torch.accelerator.empty_cache()
        return {segment["is_expandable"] for segment in segments}

    assert growable() == {False}
    try:
        change("expandable_segments:True")
        assert growable() == {True}
        with pytest.raises(ValueError, match="no_such_option"):
            change("no_such_option:1")
        assert growable() == {True}
    finally:
        change("expandable_segments:False")
    assert growable() == {False}


def test_settings_of_before_the_device_is_made_count_and_those_of_the_environment_do_not(
    program: Callable[..., str],
) -> None:
    said = program(
        f"""
        import torch
        from granule_torch import privateuse1

        torch._C._accelerator_setAllocatorSettings("max_split_size_mb:32")
        privateuse1.enable("openreg", "{NAME}", "expandable_segments:True")
        kept = torch.empty(30 << 20, device="{NAME}")
        print({{segment["is_expandable"] for segment in torch.{NAME}.memory_snapshot(False)["segments"]}})
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")
        del kept
        torch.accelerator.empty_cache()
        kept = torch.empty(30 << 20, device="{NAME}")
        print({{segment["is_expandable"] for segment in torch.{NAME}.memory_snapshot(False)["segments"]}})
        """,
        PYTORCH_ALLOC_CONF="expandable_segments:False",
    )
    assert said.splitlines() == ["{True}", "{False}"]


# --- pools ------------------------------------------------------------------------------------------------------------


def pools_of(snapshot: dict[str, Any]) -> dict[tuple[int, int], int]:
    """Bytes held by each pool."""
    held: dict[tuple[int, int], int] = {}
    for segment in snapshot["segments"]:
        pool = segment["segment_pool_id"]
        held[pool] = held.get(pool, 0) + segment["total_size"]
    return held


def test_a_pool_serves_the_threads_requests_in_its_scope_alone() -> None:
    pool = device().MemPool()
    assert pool.use_count() == 1
    outside: list[torch.Tensor] = []
    with device().use_mem_pool(pool):
        assert pool.use_count() == 2
        inside = raw(20)
        other = threading.Thread(target=lambda: outside.append(raw(40)))
        other.start()
        other.join()
    later = raw(60)
    assert pool.use_count() == 1
    assert pools_of(device().memory_snapshot(False)) == {pool.id: 20 * MIB, (0, 0): 100 * MIB}
    assert [segment["total_size"] for segment in pool.snapshot()] == [20 * MIB]
    del inside, later, outside
    gc.collect()
    torch.accelerator.empty_cache()
    assert pools_of(device().memory_snapshot(False)) == {pool.id: 20 * MIB}, "a pool in use keeps its memory"


def test_a_pool_that_is_gone_gives_its_memory_back() -> None:
    pool = device().MemPool()
    with device().use_mem_pool(pool):
        kept = raw(20)
    del kept
    assert torch.accelerator.memory_reserved() == 20 * MIB
    del pool
    gc.collect()
    assert torch.accelerator.memory_reserved() == 0


def test_a_scope_ends_with_an_exception_and_on_the_device_it_names(second_device: str) -> None:
    pool = device().MemPool()
    with pytest.raises(ZeroDivisionError), device().use_mem_pool(pool, second_device):
        here, there = raw(20), raw(40, second_device)
        raise ZeroDivisionError
    assert pool.use_count() == 1
    assert pools_of(device().memory_snapshot(False)) == {(0, 0): 20 * MIB, pool.id: 40 * MIB}
    del here, there


def test_a_pool_serves_others_in_need_where_it_was_made_so() -> None:
    total = device().mem_get_info()[1]
    for opted in (False, True):
        pool = device().MemPool(use_on_oom=opted)
        with device().use_mem_pool(pool):
            cached = raw(40)
        del cached
        device().set_per_process_memory_fraction(60 * MIB / total)
        try:
            if opted:
                assert raw(40).numel() == 40 * MIB
            else:
                with pytest.raises(torch.OutOfMemoryError):
                    raw(40)
        finally:
            device().set_per_process_memory_fraction(1.0)
        del pool
        gc.collect()
        torch.accelerator.empty_cache()


def test_a_pool_that_does_not_split_hands_segments_out_whole() -> None:
    pool = device().MemPool(no_split=True)
    with device().use_mem_pool(pool):
        kept = raw(2), raw(2)
    assert [len(segment["blocks"]) for segment in pool.snapshot()] == [1, 1]
    del kept


def test_a_pool_over_another_allocator_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="granule_pool_create"):
        device().MemPool(object())


# --- history ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def record() -> Iterator[Callable[..., None]]:
    yield device().memory._record_memory_history
    device().memory._record_memory_history(enabled=None)


def names(stack: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for frame in stack]


def test_a_snapshot_says_who_requested_what(record: Callable[..., None], tmp_path: Path) -> None:
    record(stacks="python", clear_history=True)

    def takes_memory() -> torch.Tensor:
        return raw(20)

    kept = takes_memory()
    gone = takes_memory()
    address = gone.data_ptr()
    del gone
    snapshot = device().memory._snapshot()

    block = next(
        block
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["address"] == kept.data_ptr()
    )
    assert block["state"] == "active_allocated" and block["requested_size"] == 20 * MIB
    frame = next(frame for frame in block["frames"] if frame["name"] == "takes_memory")
    assert frame["filename"] == __file__
    assert frame["line"] == takes_memory.__code__.co_firstlineno + 1
    mine = [entry for entry in snapshot["device_traces"][0] if entry.get("addr") == address]
    assert [entry["action"] for entry in mine][-3:] == ["alloc", "free_requested", "free_completed"]
    assert "takes_memory" in names(mine[-3]["frames"]) and "takes_memory" not in names(mine[-2]["frames"])

    device().memory._dump_snapshot(str(tmp_path / "snapshot.pickle"))
    read = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert read["segments"] == snapshot["segments"]
    assert "20.0MiB" in _memory_viz.segsum(read), "the tools of PyTorch read it"
    assert torch.accelerator.memory._snapshot()["segments"] == snapshot["segments"]


def without_frames(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_frames(each) for key, each in value.items() if key != "frames"}
    return [without_frames(each) for each in value] if isinstance(value, list) else value


def test_a_snapshot_with_stacks_is_the_one_without_them(record: Callable[..., None]) -> None:
    record(stacks="python", clear_history=True)
    total = device().mem_get_info()[1]
    pool = device().MemPool()
    with device().use_mem_pool(pool):
        kept = raw(20)
    small = torch.empty(1000, device=NAME)
    with pytest.raises(torch.OutOfMemoryError):
        raw(2 * total // MIB)
    del small
    plain, full = device().memory_snapshot(True), device().memory._snapshot()
    # A snapshot is written into the history, too.
    for entries in full["device_traces"]:
        while entries and entries[-1]["action"] == "snapshot":
            entries.pop()
    for entries in plain["device_traces"]:
        while entries and entries[-1]["action"] == "snapshot":
            entries.pop()
    assert without_frames(full["segments"]) == without_frames(plain["segments"])
    assert without_frames(full["device_traces"]) == without_frames(plain["device_traces"])
    assert full["allocator_settings"] == plain["allocator_settings"]
    assert {"alloc", "oom", "segment_alloc"} <= {entry["action"] for entry in full["device_traces"][0]}
    del kept


def test_what_is_recorded_can_be_chosen(record: Callable[..., None]) -> None:
    def traced(**wanted: Any) -> list[dict[str, Any]]:
        record(clear_history=True, **wanted)
        kept, gone = raw(2), raw(2)
        del gone
        entries: list[dict[str, Any]] = device().memory._snapshot()["device_traces"][0]
        del kept
        return [entry for entry in entries if entry["action"] in ("alloc", "free_requested", "free_completed")]

    assert not any("frames" in entry for entry in traced(context=None))
    last = {
        context: {entry["action"]: entry["frames"] for entry in traced(context=context, stacks="python")}
        for context in ("alloc", "all")
    }
    assert last["alloc"]["free_requested"] == last["alloc"]["alloc"], "a free without a stack has the request's"
    assert last["all"]["free_requested"] != last["all"]["alloc"]
    assert "free_requested" not in {e["action"] for e in traced(context=None, skip_actions=["free_requested"])}
    assert len(traced(context=None, max_entries=2)) <= 2
    assert len(traced(context=None, enabled="state")) <= 1
    record(enabled=None)
    kept = raw(2)
    assert device().memory._snapshot()["device_traces"][0] == []
    del kept
    for wrong in ({"enabled": "some"}, {"context": "none"}, {"stacks": "c"}, {"skip_actions": ["frees"]}):
        with pytest.raises(ValueError):
            record(**wrong)


def test_stacks_of_cpp_are_there_where_they_are_asked_for(record: Callable[..., None]) -> None:
    record(stacks="all", clear_history=True)
    kept = raw(2)
    block = next(
        block
        for segment in device().memory._snapshot()["segments"]
        for block in segment["blocks"]
        if block["address"] == kept.data_ptr()
    )
    assert any("empty" in frame["name"] and frame["filename"] != __file__ for frame in block["frames"])


# --- graphs -----------------------------------------------------------------------------------------------------------

has_graphs = pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="this PyTorch has no torch.accelerator.Graph")


@has_graphs
def test_a_graph_does_its_work_at_each_launch() -> None:
    source = torch.full((1000,), 1.0, device=NAME)
    result = torch.zeros(1000, device=NAME)
    stream = torch.Stream(NAME)
    stream.wait_stream(torch.accelerator.current_stream())
    graph = torch.accelerator.Graph()
    with stream, graph:
        between = torch.empty_like(source)
        between.copy_(source)
        result.copy_(between)
    torch.accelerator.synchronize()
    assert result.sum().item() == 0, "captured work has not run"
    for value in (2.0, 3.0):
        source.fill_(value)
        torch.accelerator.synchronize()
        graph.replay()
        torch.accelerator.synchronize()
        assert result.unique().tolist() == [value]
    pool = graph.pool()
    assert pools_of(device().memory_snapshot(False))[pool] >= between.numel() * 4
    del between


@has_graphs
def test_graphs_share_a_pool_and_give_it_back() -> None:
    source = raw(20)
    stream = torch.Stream(NAME)
    first = torch.accelerator.Graph()
    with stream, first:
        first_copy = raw(20)
        first_copy.copy_(source)
    del first_copy
    second = torch.accelerator.Graph(pool=first.pool())
    with stream, second:
        second_copy = raw(20)
        second_copy.copy_(source)
    del second_copy
    assert second.pool() == first.pool() and first.pool() != (0, 0)
    assert pools_of(device().memory_snapshot(False))[first.pool()] == 20 * MIB, "one piece serves both"
    pool = first.pool()
    first.reset()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert pool in pools_of(device().memory_snapshot(False))
    del second
    gc.collect()
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert pools_of(device().memory_snapshot(False)) == {(0, 0): 20 * MIB}
    with stream, first:
        source.copy_(source.clone())
    first.replay()
    torch.accelerator.synchronize()


@has_graphs
def test_a_graph_keeps_the_pools_that_it_was_captured_with() -> None:
    source = raw(20)
    pool = device().MemPool()
    stream = torch.Stream(NAME)
    graph = torch.accelerator.Graph()
    with stream, graph:
        with device().use_mem_pool(pool):
            copy = raw(20)
            copy.copy_(source)
    identity = pool.id
    del copy, pool
    gc.collect()
    torch.accelerator.empty_cache()
    assert pools_of(device().memory_snapshot(False))[identity] == 20 * MIB
    graph.replay()
    torch.accelerator.synchronize()
    graph.reset()
    torch.accelerator.empty_cache()
    assert identity not in pools_of(device().memory_snapshot(False))


@has_graphs
def test_wrong_uses_of_graphs_are_refused() -> None:
    graph = torch.accelerator.Graph()
    for wrong in (graph.replay, graph.capture_end, graph.pool, graph.instantiate):
        with pytest.raises(RuntimeError, match="This graph"):
            wrong()
    source, stream = raw(2), torch.Stream(NAME)
    with stream, graph:
        source.copy_(source.clone())
        with pytest.raises(RuntimeError, match="This graph"):
            graph.reset()
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.instantiate()
    with pytest.raises(RuntimeError, match="captured already"):
        graph.capture_begin()
    with pytest.raises(NotImplementedError):
        graph.debug_dump("graph.dot")
    kept = torch.accelerator.Graph(keep_graph=True)
    with stream, kept:
        source.copy_(source.clone())
    kept.instantiate()
    kept.replay()
    torch.accelerator.synchronize()
