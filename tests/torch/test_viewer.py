"""PyTorch's own viewer, and the stock pickle module, open the snapshots that `granule replay` writes."""
import os
import pickle
import subprocess
from pathlib import Path

import pytest
from torch.cuda import _memory_viz as viz

COMMAND = os.environ.get("GRANULE_COMMAND")
TRACE = Path(__file__).resolve().parents[2] / "crates/tools/granule-cli/data/resnet_train.trace.gz"


@pytest.mark.skipif(not COMMAND, reason="GRANULE_COMMAND names no granule command")
@pytest.mark.parametrize("conf", ["", "expandable_segments:True"], ids=["fixed", "growable"])
def test_the_viewer_opens_what_a_replay_writes(tmp_path, conf):
    file = tmp_path / "replayed.pickle"
    replay = [COMMAND, "replay", str(TRACE), "--conf", conf, "--snapshot", str(file), "--json"]
    subprocess.run(replay, check=True, capture_output=True, timeout=600)
    data = pickle.loads(file.read_bytes())
    assert data["segments"] and sum(len(trace) for trace in data["device_traces"])
    for segment in data["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"], segment["address"]
    summary = viz.segsum(data)
    assert f"segments: {len(data['segments'])}" in summary, summary[-400:]
    assert viz.trace(data).splitlines()
    for plot in (viz.trace_plot, viz.segment_plot):
        html = plot(data)
        assert "add_local_files" in html and len(html) > 1000
