"""Passes snapshots through PyTorch's own tools: the stock pickle module and torch.cuda._memory_viz.

usage: viewer.py SNAPSHOT.pickle...
"""
import gzip
import pickle
import sys

from torch.cuda import _memory_viz as viz

for name in sys.argv[1:]:
    opener = gzip.open if open(name, "rb").read(2) == b"\x1f\x8b" else open
    with opener(name, "rb") as file:
        data = pickle.load(file)
    entries = sum(len(trace) for trace in data["device_traces"])
    blocks = sum(len(segment["blocks"]) for segment in data["segments"])
    for segment in data["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"], segment["address"]
    summary = viz.segsum(data)
    assert f"segments: {len(data['segments'])}" in summary, summary[-400:]
    text = viz.trace(data)
    assert entries == 0 or len(text.splitlines()) > 0
    for plot in (viz.trace_plot, viz.segment_plot):
        html = plot(data)
        assert "add_local_files" in html and len(html) > 1000
    print(f"{name}: {len(data['segments'])} segments, {blocks} blocks, {entries} entries: segsum, trace, trace_plot and segment_plot accept it")
