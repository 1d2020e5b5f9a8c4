"""The memory history, snapshots, and PyTorch's own readers of them."""
import contextlib
import os
import pickle
import tempfile
import threading

import torch
from observe import MIB, error, frame, own_frames, raw, snapshot
from scene import DEFAULT, EXPANDABLE, Run, release, scene
from torch.cuda import _memory_viz as viz

RUNS = (DEFAULT, EXPANDABLE)
record = torch.cuda.memory._record_memory_history


@contextlib.contextmanager
def recording(*arguments, **named):
    record(*arguments, **{"clear_history": True, "stacks": "python", **named})
    try:
        yield
    finally:
        record(enabled=None)


def allocate_here(size):
    return raw(size)


def some_work():
    kept = [allocate_here(size) for size in (1000, 3 * MIB, 700, 30 * MIB)]
    del kept[1]
    kept.append(allocate_here(2 * MIB))
    kept.pop(0)
    return kept


def actions(taken):
    return [entry["action"] for entry in taken["device_traces"][0]]


@scene(real=True)
def test_h01_frames_name_the_python_function():
    with recording():
        kept = some_work()
        torch.cuda.empty_cache()
        taken = torch.cuda.memory._snapshot()
    blocks = [block for segment in taken["segments"] for block in segment["blocks"]]
    live = [block for block in blocks if block["state"] == "active_allocated"]
    assert live and all(any(entry["name"] == "allocate_here" for entry in block["frames"]) for block in live)
    assert frame(live[0]["frames"][1]).startswith("allocate_here test_history.py:")
    assert all("frames" in entry for entry in taken["device_traces"][0])
    del kept
    return snapshot(taken)


@scene(real=True)
def test_h02_h03_h04_contexts_are_kept_where_they_were_asked_for():
    seen = []
    for context in (None, "state", "alloc", "all"):
        with recording(context=context):
            kept = some_work()
            del kept
            torch.cuda.empty_cache()
            taken = torch.cuda.memory._snapshot()
        seen.append(snapshot(taken))
        framed = {entry["action"] for entry in taken["device_traces"][0] if entry.get("frames")}
        assert ("alloc" in framed) == (context in ("alloc", "all")), context
        frees = [entry for entry in taken["device_traces"][0] if entry["action"] == "free_requested"]
        if context == "alloc":
            assert all("allocate_here" in frame(entry["frames"][1]) for entry in frees)
        if context == "all":
            assert not any("allocate_here" in str(own_frames(entry["frames"])) for entry in frees)
    return seen


@scene(real=True)
def test_h05_python_stacks_have_no_cpp_frames_and_full_ones_have_both():
    seen = []
    for stacks in ("python", "all"):
        with recording(stacks=stacks, context="alloc"):
            kept = allocate_here(5000)
            taken = torch.cuda.memory._snapshot()
        frames = [entry for entry in taken["device_traces"][0] if entry["action"] == "alloc"][0]["frames"]
        native = [entry for entry in frames if not entry["filename"].endswith(".py")]
        assert bool(native) == (stacks == "all"), native
        assert any(entry["name"] == "allocate_here" for entry in frames)
        seen.append(own_frames(frames))
        del kept
    return seen


@scene(real=True)
def test_h06_off_clears_and_stops_and_state_keeps_at_most_one():
    seen = []
    record(context=None)
    assert torch._C._cuda_isHistoryEnabled()
    kept = some_work()
    record("state", context="state", stacks="python", clear_history=True)
    seen.append(snapshot())
    del kept
    seen.append(snapshot())
    assert len(seen[1]["traces"][0]) <= 1
    record(enabled=None)
    assert not torch._C._cuda_isHistoryEnabled()
    raw(600)
    seen.append(snapshot())
    assert seen[2]["traces"] == [[]]
    return seen


@scene(real=True)
def test_h17_state_mode_keeps_what_was_recorded():
    record(context="all", stacks="all", max_entries=50)
    kept = [raw(600) for _ in range(100)]
    record("state", context="state", stacks="python")
    entries = torch.cuda.memory._snapshot()["device_traces"][0]
    record(enabled=None)
    del kept
    return len(entries)


@scene
def test_e08_free_blocks_show_the_requests_that_pytorch_shows():
    def shown():
        segments = torch.cuda.memory._snapshot()["segments"]
        return [[(block["size"], block["state"], block["requested_size"]) for block in segment["blocks"]] for segment in segments]

    kept = [raw(n * MIB) for n in (30, 70, 15)]
    kept[1] = None
    seen = [shown()]
    for step in (torch.cuda.empty_cache, lambda: kept.append(raw(12 * MIB)), lambda: kept.append(raw(33 * MIB))):
        step()
        seen.append(shown())
    for _ in range(2):
        kept.pop(3)
        seen.append(shown())
    torch.cuda.empty_cache()
    return [*seen, shown()]


@scene(real=True)
def test_h07_the_newest_entries_stay():
    with recording(context=None, max_entries=10):
        for size in range(600, 640):
            raw(size)
        taken = torch.cuda.memory._snapshot()
        assert len(taken["device_traces"][0]) == 10 and taken["device_traces"][0][-1]["size"] == 639
        record(context=None, max_entries=10, clear_history=True)
        assert [entry for entry in torch.cuda.memory._snapshot()["device_traces"][0] if entry["action"] != "snapshot"] == []
    return snapshot(taken)


@scene(real=True)
def test_h07_a_limit_of_nothing_keeps_one_entry_and_drops_none():
    seen = []
    with recording(context=None):
        raw(600)
        record(context=None, max_entries=0)
        seen.append(snapshot())
    with recording(context=None, max_entries=0):
        raw(700)
        seen += [torch._C._cuda_isHistoryEnabled(), snapshot(), snapshot()]
    assert actions_of(seen[0])[-3:] == ["alloc", "free_requested", "free_completed"] and len(actions_of(seen[2])) == 1
    return seen


def actions_of(shown):
    return [entry["action"] for entry in shown["traces"][0]]


@scene(real=True)
def test_h08_exactly_the_named_actions_are_left_out():
    seen = []
    names = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "snapshot")
    for skipped in ([], ["alloc"], ["free_requested", "segment_free"], list(names)):
        with recording(context=None, skip_actions=skipped):
            some_work().clear()
            torch.cuda.empty_cache()
            torch.cuda.memory._snapshot()
            taken = torch.cuda.memory._snapshot()
        assert not set(actions(taken)) & set(skipped)
        seen.append(actions(taken))
    said = error(record, skip_actions=["allok"])
    assert "Unknown TraceEntry action" in said
    record(enabled=None)
    return [seen, said]


@scene(alone=True, runs=(DEFAULT,))
def test_h09_compiled_regions_are_named():
    torch.cuda.init()
    twice = torch.compile(lambda tensor: tensor.add(1).mul(2), backend="eager")
    start = torch.ones(1000, device="cuda")
    with recording(context=None, compile_context=True):
        twice(start)
        torch.ones(77, device="cuda")
        taken = torch.cuda.memory._snapshot()
    named = [entry["compile_context"] for entry in taken["device_traces"][0]]
    assert any(name.startswith("0/0") or "Compiled" in name or name[0].isdigit() for name in named if name), named
    assert named[-1] == "N/A"
    return [named, actions(taken)]


@scene(real=True, since=(2, 14))
def test_h10_metadata_as_text_and_as_a_dict_and_notes_on_views():
    memory = torch.cuda.memory
    assert memory._memory_metadata_supported()
    seen = []
    with recording(context=None):
        as_text = '{"layer":3,"kind":"weight"}'
        memory._set_memory_metadata({"layer": 3, "kind": "weight"} if release() >= (2, 15) else as_text)
        assert memory._get_memory_metadata() == as_text
        kept = [allocate_here(5000)]
        memory._set_memory_metadata("text")
        kept.append(allocate_here(5000))
        thread = threading.Thread(target=lambda: kept.append(allocate_here(5000)))
        thread.start()
        thread.join()
        memory._set_memory_metadata("")
        assert memory._get_memory_metadata() == ""
        memory._annotate_tensor(kept[0][100:], "a view")
        seen += [error(memory._annotate_tensor, torch.ones(1), "on the CPU")]
        taken = memory._snapshot()
    notes = [entry["user_metadata"] for entry in taken["device_traces"][0]]
    assert notes[-4:-1] != notes[-3:] and notes[-1] == "a view" and notes[-2] == ""
    assert taken["device_traces"][0][-1]["addr"] == kept[0].data_ptr()
    return [*seen, snapshot(taken)]


@scene(real=True)
def test_h11_anomaly_mode_records_where_the_forward_ran():
    with recording(), torch.autograd.set_detect_anomaly(True):
        weight = torch.ones(1000, device="cuda", requires_grad=True)
        (weight * 3).exp().sum().backward()
        taken = torch.cuda.memory._snapshot()
    forward = [entry for entry in taken["device_traces"][0] if entry.get("forward_frames")]
    assert forward and "test_history.py" in "".join(forward[0]["forward_frames"])
    return [[entry["action"], entry["size"], "forward_frames" in entry] for entry in taken["device_traces"][0]]


@scene(real=True)
def test_h12_a_dumped_file_reads_back_with_the_stock_unpickler():
    with recording(stacks="all"), tempfile.TemporaryDirectory() as folder:
        kept = some_work()
        file = os.path.join(folder, "dump.pickle")
        torch.cuda.memory._dump_snapshot(file)
        with open(file, "rb") as opened:
            taken = pickle.load(opened)
    assert actions(taken)[-1] in ("free_completed", "alloc") and taken["segments"]
    frames = [entry for entry in taken["device_traces"][0] if entry["action"] == "alloc"][0]["frames"]
    # A caller in C++: torch's own function that makes a tensor.
    assert any("empty" in entry["name"] and not entry["filename"].endswith(".py") for entry in frames), frames
    del kept
    return snapshot(taken)


@scene(real=True)
def test_h13_without_traces_the_segments_are_the_same():
    with recording(context=None):
        kept = some_work()
        whole = torch.cuda.memory_snapshot()
        lean = torch.cuda.memory_snapshot(include_traces=False)
        parts = torch._C._cuda_memorySnapshot((0, 0, False))
    assert whole == lean and parts["device_traces"] == [] and parts["segments"] == whole
    del kept
    return [list(parts), parts["external_annotations"], parts["device_traces"]]


@scene(real=True, since=(2, 12))
def test_h14_entries_and_segments_have_their_pools_id():
    pool = torch.cuda.MemPool()
    with recording(context=None):
        with torch.cuda.use_mem_pool(pool):
            inside = raw(3 * MIB)
        outside = raw(3 * MIB)
        taken = torch.cuda.memory._snapshot()
    assert {tuple(entry["pool_id"]) for entry in taken["device_traces"][0]} == {(0, 0), pool.id}
    assert {tuple(segment["segment_pool_id"]) for segment in taken["segments"]} >= {pool.id}
    del inside, outside
    return snapshot(taken)


@scene(real=True, since=(2, 12))
def test_h15_the_traceback_of_a_live_allocation():
    traceback = torch.cuda.memory._allocation_traceback
    before = raw(5000)
    with recording():
        kept = allocate_here(5000)
        address = kept.data_ptr()
        frames = traceback(address)
        assert frames[1]["name"] == "allocate_here"
        seen = [own_frames(frames), traceback(address + 512), traceback(before.data_ptr()), traceback(12345)]
        del kept
        seen.append(traceback(address))
    assert seen[1:] == [None] * 4
    return seen


@scene(alone=True)
def test_h16_pytorchs_own_tools_read_the_snapshot():
    torch.cuda.init()
    with recording(stacks="all"):
        net = torch.nn.Sequential(torch.nn.Linear(1000, 4000), torch.nn.ReLU(), torch.nn.Linear(4000, 10)).cuda()
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(2):
            net(torch.ones(300, 1000, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        error(raw, 1 << 40)
        taken = torch.cuda.memory._snapshot()
    summary, text = viz.segsum(taken), viz.trace(taken)
    assert f"segments: {len(taken['segments'])}" in summary and "OutOfMemoryError" in text
    for html in (viz.trace_plot(taken), viz.segment_plot(taken), viz.trace_plot(taken, filter_freed=True)):
        assert "add_local_files" in html and len(html) > 10000
    # What would go to the script that draws it, which comes from the net.
    assert all("test_h16" in make(taken, format_flamegraph=str) for make in (viz.segments, viz.memory))
    sums = [line for line in summary.splitlines() if line.startswith(("segments:", "total_"))]
    return [sums, len(text.splitlines()), [len(block["frames"]) > 3 for s in taken["segments"] for block in s["blocks"]]]


@scene(alone=True, real=True)
def test_h18_ranges_of_the_profiler_come_in_pairs():
    with recording(context=None, global_record_annotations=True):
        with torch.autograd.profiler.record_function("outer"):
            raw(5000)
            with torch.autograd.profiler.record_function("inner"):
                raw(3 * MIB)
        taken = torch.cuda.memory._snapshot()
    assert [(note["stage"], note["name"]) for note in taken["external_annotations"]] == [
        ("START", "outer"), ("START", "inner"), ("END", "inner"), ("END", "outer")
    ]
    return snapshot(taken)


@scene(real=True)
def test_wrong_arguments_and_the_old_form():
    seen = [error(record, "some"), error(record, context="some"), error(record, stacks="some")]
    record(True, trace_alloc_max_entries=100, trace_alloc_record_context=True)
    kept = some_work()
    seen.append(actions(torch.cuda.memory._snapshot()))
    record(False)
    del kept
    assert len(seen[-1]) > 5
    return seen


@scene(runs=(Run("two devices", devices=2),))
def test_each_device_has_a_trace_of_its_own():
    with recording(context=None):
        first, second = raw(5000), torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
        taken = torch.cuda.memory._snapshot()
    assert [len(trace) for trace in taken["device_traces"]] == [2, 2] or len(taken["device_traces"]) == 2
    del first, second
    return snapshot(taken)


@scene(real=True, runs=(DEFAULT,), since=(2, 14))
def test_pinned_host_memory_is_in_the_snapshot():
    with recording(context=None, record_pinned_host_memory=True):
        kept = torch.empty(10240, pin_memory=True)
        taken = torch.cuda.memory._snapshot()
    hosts = [[segment["device"], segment["total_size"]] for segment in taken["host_segments"]]
    assert hosts and taken["host_traces"]
    del kept
    torch.accelerator.empty_host_cache()
    return [hosts, [[entry["action"], entry["size"]] for entry in taken["host_traces"]]]
