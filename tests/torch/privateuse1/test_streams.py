"""Streams and events."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
import torch
from torch import accelerator

from .support import held

# --- streams -----------------------------------------------------------------------------------------------------------


def test_a_new_stream_is_on_the_current_device(second_device: str) -> None:
    assert torch.Stream().device == torch.device("granule:0")
    assert torch.Stream(second_device).device == torch.device(second_device)
    assert torch.Stream(1).device_index == 1
    accelerator.set_device_index(1)
    assert torch.Stream("granule").device_index == 1
    assert "granule" in repr(torch.Stream()) and "device_index=1" in repr(torch.Stream())


def test_identity() -> None:
    stream = torch.Stream()
    again = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert again == stream and hash(again) == hash(stream)
    assert torch.Stream() != stream
    assert stream != torch.granule.default_stream()


def test_streams_come_back_after_a_while() -> None:
    ids = [torch.Stream().stream_id for _ in range(100)]
    assert len(set(ids)) == 32
    assert ids[-32:] != ids[:1] * 32
    urgent = torch.Stream(priority=-1)
    assert urgent.stream_id not in ids


def test_current_stream(second_device: str) -> None:
    default = accelerator.current_stream()
    assert default == torch.granule.default_stream()
    stream, other = torch.Stream("granule:0"), torch.Stream(second_device)
    with stream:
        assert accelerator.current_stream() == stream
        with torch.granule.stream(other):
            assert accelerator.current_stream(1) == other
        assert accelerator.current_stream(0) == stream
    assert accelerator.current_stream() == default
    accelerator.set_stream(stream)
    assert torch.granule.current_stream("granule:0") == stream
    accelerator.set_stream(default)


def test_query_and_synchronize() -> None:
    stream = torch.Stream()
    assert stream.query()
    with held(stream):
        assert not stream.query()
    assert stream.query()


@pytest.mark.parametrize("wait", [lambda stream: stream.synchronize(), lambda stream: accelerator.synchronize()])
def test_waits_of_the_host(wait: Callable[[torch.Stream], None]) -> None:
    stream = torch.Stream()
    thread = threading.Thread(target=wait, args=(stream,))
    with held(stream):
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
    thread.join()


def test_copies_are_ordered_by_waits() -> None:
    first, second = torch.Stream(), torch.Stream()
    ones = torch.ones(1000, device="granule")
    source, target = torch.zeros_like(ones), torch.zeros_like(ones)
    accelerator.synchronize()
    with held(first):
        with first:
            source.copy_(ones)
        second.wait_stream(first)
        with second:
            target.copy_(source)
        assert not second.query()
    second.synchronize()
    assert target.cpu().eq(1).all()


def test_waits_across_devices(second_device: str) -> None:
    here, there = torch.Stream("granule:0"), torch.Stream(second_device)
    with held(here):
        there.wait_stream(here)
        assert not there.query()
    there.synchronize()


def test_a_copy_between_devices_is_ordered_on_both(second_device: str) -> None:
    here, there = torch.Stream("granule:0"), torch.Stream(second_device)
    ones = torch.ones(1000, device="granule:0")
    source, target = torch.zeros_like(ones), torch.zeros(1000, device=second_device)
    accelerator.synchronize(0)
    accelerator.synchronize(1)
    with held(here):
        with here, there:
            source.copy_(ones)
            target.copy_(source)
        assert not there.query(), "the target's stream waits for the copy"
    there.synchronize()
    assert target.cpu().eq(1).all()
    # What the target's stream was given before comes before the copy, what it is given later comes after.
    with here:
        source.fill_(2)
    here.synchronize()
    threes = torch.full_like(target, 3)
    accelerator.synchronize(1)
    with held(there):
        with here, there:
            earlier = target.clone()
            target.copy_(source)
            target.copy_(threes)
        time.sleep(0.05)
    here.synchronize()
    assert earlier.cpu().eq(1).all() and target.cpu().eq(3).all()


# --- events ------------------------------------------------------------------------------------------------------------


def test_an_event_before_its_record() -> None:
    event = torch.Event("granule")
    assert event.event_id == 0
    assert event.query()
    event.synchronize()


def test_records() -> None:
    stream = torch.Stream()
    event = torch.Event("granule")
    with held(stream):
        event.record(stream)
        other = stream.record_event()
        assert event.device == torch.device("granule:0")
        assert event.event_id not in (0, other.event_id)
        assert not event.query()
    event.synchronize()
    assert event.query() and other.query()
    event.record(stream)
    event.synchronize()


def test_an_event_of_another_device_is_refused(second_device: str) -> None:
    event = torch.Stream("granule:0").record_event()
    with pytest.raises(RuntimeError, match="Event device 0 does not match recording stream's device 1"):
        event.record(torch.Stream(second_device))


def test_elapsed_time() -> None:
    start, end = torch.Event("granule", enable_timing=True), torch.Event("granule", enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    stream = torch.Stream()
    start.record(stream)
    start.synchronize()
    with held(stream):
        end.record(stream)
        with pytest.raises(RuntimeError, match="must be completed"):
            start.elapsed_time(end)
        time.sleep(0.01)
    assert 10 <= start.elapsed_time(end) < 10_000


def test_elapsed_time_needs_timing() -> None:
    start, end = torch.Event("granule"), torch.Event("granule")
    start.record()
    end.record()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(end)


def test_three_streams_wait_for_one_event() -> None:
    leader = torch.Stream()
    followers = [torch.Stream() for _ in range(3)]
    with held(leader):
        event = leader.record_event()
        for follower in followers:
            follower.wait_event(event)
            assert not follower.query()
    for follower in followers:
        follower.synchronize()
    assert event.query()
