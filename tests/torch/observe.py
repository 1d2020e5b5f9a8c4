"""What scenes return: figures and snapshots, without what differs from one run to the next.

Addresses become "segment + offset", with segments numbered in the order in which they appear; streams are numbered the
same way; times are checked and left out; frames become "function file:line".
"""
import gc
import os

import torch

MIB = 1 << 20


def raw(size, stream=None):
    """A tensor of `size` bytes."""
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def stats(device=None):
    """All of `memory_stats()`, in its order."""
    gc.collect()
    return dict(torch.cuda.memory_stats(device))


def brief(device=None):
    """The figures that most steps move, for scenes with many steps."""
    figures = torch.cuda.memory_stats(device)
    counts = [figures[name] for name in ("num_device_alloc", "num_device_free", "num_alloc_retries", "num_ooms")]
    names = ("allocated_bytes", "requested_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes")
    return [figures[f"{name}.all.current"] for name in names] + counts


def error(call, *arguments, **named):
    """The type and the text of the error that a call ends with."""
    try:
        call(*arguments, **named)
    except Exception as failure:
        return f"{type(failure).__module__}.{type(failure).__qualname__}: {str(failure).splitlines()[0]}"
    raise AssertionError(f"{call} was not refused")


class Names:
    """Numbers for things, in the order in which they are first seen."""

    def __init__(self, known=()):
        self.known = {thing: number for number, thing in enumerate(known)}

    def __call__(self, thing):
        return self.known.setdefault(thing, len(self.known))


class Places:
    """Addresses as places in segments."""

    def __init__(self, snapshot):
        ranges = []
        for entry in sum(snapshot["device_traces"], []):
            if entry["action"] in ("segment_alloc", "segment_map"):
                ranges.append((entry["addr"], entry["size"], entry["action"] == "segment_map"))
        for segment in snapshot["segments"]:
            ranges.append((segment["address"], segment["total_size"], segment["is_expandable"]))
        self.bases = self.joined(ranges)
        self.number = Names()
        for address, _, _ in ranges:
            self(address)

    @staticmethod
    def joined(ranges):
        """Where each range belongs: what was mapped side by side is one."""
        bases = []
        for address, size, mapped in sorted(ranges):
            last = bases[-1] if bases else None
            if last and address < last[1]:
                last[1] = max(last[1], address + size)
            elif last and mapped and last[2] and address == last[1]:
                last[1] = address + size
            else:
                bases.append([address, address + size, mapped])
        return bases

    def __call__(self, address):
        for base, end, _ in self.bases:
            if base <= address < end:
                return f"{self.number(base)}+{address - base}"
        return "nowhere" if address else "null"


def frame(entry):
    return f"{entry['name']} {os.path.basename(entry['filename'])}:{entry['line']}"


def own_frames(frames):
    """The frames of the test files. Those of torch and of the interpreter are left out, since Granule's may differ."""
    here = os.path.dirname(os.path.abspath(__file__))
    return [frame(entry) for entry in frames if entry["filename"].startswith(here)]


def snapshot(taken=None):
    """A snapshot as a value that can be compared."""
    taken = taken or torch.cuda.memory._snapshot()
    place, stream = Places(taken), Names([0])
    traces = [[trace_entry(entry, place, stream) for entry in trace] for trace in taken["device_traces"]]
    for trace in taken["device_traces"]:
        times = [entry["time_us"] for entry in trace]
        assert times == sorted(times) and all(isinstance(time, int) for time in times)
    return {
        "keys": list(taken),
        "segments": [segment_entry(segment, place, stream) for segment in taken["segments"]],
        "traces": traces,
        "settings": taken["allocator_settings"],
        "annotations": [
            {key: value for key, value in annotation.items() if key != "time_us"}
            for annotation in taken["external_annotations"]
        ],
    }


def segment_entry(segment, place, stream):
    shown = {key: value for key, value in segment.items() if key not in ("frames", "blocks")}
    shown["keys"] = sorted(segment)
    # Native loses the context of a segment that was ever split; the rig knows the name.
    shown["frames_unless_lost"] = own_frames(segment["frames"])
    shown["address"], shown["stream"] = place(segment["address"]), stream(segment["stream"])
    at = segment["address"]
    shown["blocks"] = []
    for block in segment["blocks"]:
        assert block["address"] == at, "blocks lie side by side"
        at += block["size"]
        entry = {**block, "keys": list(block), "address": place(block["address"])}
        entry["frames"] = own_frames(block["frames"])
        if block["state"] == "inactive":
            # What was last requested of it, which depends on which of two merged blocks the other became part of.
            del entry["requested_size"]
        shown["blocks"].append(entry)
    assert at == segment["address"] + segment["total_size"]
    return shown


def trace_entry(entry, place, stream):
    shown = {**entry, "keys": list(entry), "stream": stream(entry["stream"])}
    del shown["time_us"]
    if "addr" in entry:
        shown["addr"] = place(entry["addr"])
    if entry["action"] in ("segment_free", "segment_unmap"):
        # Native loses the context of a segment that was ever split.
        shown.pop("frames", None)
        shown["keys"] = [key for key in entry if key != "frames"]
    elif "frames" in entry:
        shown["frames"] = own_frames(entry["frames"])
    return shown


def segments_of(pool=None):
    """The segments of a snapshot, or those of one pool, as values that can be compared."""
    shown = snapshot()["segments"]
    return [segment for segment in shown if pool is None or tuple(segment["segment_pool_id"]) == tuple(pool)]


def native_works():
    """Fails unless PyTorch's own allocator serves; what it gave."""
    kept = raw(3 * MIB)
    assert torch.cuda.get_allocator_backend() == "native" and torch.cuda.memory_allocated() >= 3 * MIB
    return kept.numel()
