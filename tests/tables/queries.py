"""Runs the queries of docs/tables.md, as they stand there, on runs that `granule export` wrote, and compares what they
answer with what is known of these runs from elsewhere: from how they were made, and from `granule replay`.

    python tests/tables/queries.py GRANULE FOLDER

GRANULE is the command; FOLDER is made anew. Needs the package duckdb. `cargo xtask tables` does all of it.
"""

import gzip
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "crates/tools/granule-cli/data/resnet_train.trace.gz"
MIB = 1 << 20
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:128"]


def queries():
    """The SQL blocks of the document by the first words of their headings."""
    text = (ROOT / "docs/tables.md").read_text()
    found = dict(re.findall(r"^### (\w+ \w+)[^\n]*\n.*?```sql\n(.*?)```", text, re.S | re.M))
    assert list(found) == ["Which call", "What leaks", "How much"], list(found)
    return found


def snapshot(path, blocks, live_at_end):
    """A snapshot as PyTorch writes it. `blocks` are (function, line, size) in order; those numbered in `live_at_end` stay."""
    address, entries, freed = 0x7F0000000000, [], []
    base = {"stream": 0, "compile_context": "N/A", "user_metadata": "", "segment_pool_id": (0, 0)}

    def entry(action, addr, size, frames):
        time = 1_700_000_000_000_000 + 10 * len(entries)
        entries.append({"action": action, "addr": addr, "size": size, "time_us": time, "frames": frames, **base})

    held = 64 * MIB
    entry("segment_alloc", address, held, [])
    state, at = [], address
    for number, (function, line, size) in enumerate(blocks):
        frames = [{"name": function, "filename": "model.py", "line": line}]
        frames.append({"name": "main", "filename": "train.py", "line": 3})
        entry("alloc", at, size, frames)
        stays = number in live_at_end
        if not stays:
            freed.append((at, size, frames))
        name = "active_allocated" if stays else "inactive"
        state.append({"address": at, "size": size, "requested_size": size, "state": name, "frames": frames})
        at += size
    for addr, size, frames in freed:
        entry("free_requested", addr, size, frames)
        entry("free_completed", addr, size, frames)
    if at < address + held:
        rest = address + held - at
        state.append({"address": at, "size": rest, "requested_size": 0, "state": "inactive", "frames": []})
    live = sum(block["size"] for block in state if block["state"] == "active_allocated")
    segment = {
        "device": 0, "address": address, "total_size": held, "allocated_size": live, "active_size": live,
        "requested_size": live, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
        "is_expandable": False, "frames": [], "blocks": state,
    }
    with gzip.open(path, "wb") as file:
        pickle.dump({"segments": [segment], "device_traces": [entries], "allocator_settings": {}}, file)


def leaking_trace(path, iterations, leak):
    """A program that keeps `leak` bytes in each iteration, and a growing list in the first only."""
    lines, number = ["# {}"], 0

    def alloc(size):
        nonlocal number
        lines.append(f"a {number} {size} 0")
        number += 1
        return number - 1

    alloc(32 * MIB)
    for iteration in range(iterations):
        lines.append(f"i {iteration}")
        work = [alloc(MIB * (1 + k)) for k in range(4)]
        alloc(leak)
        if iteration == 0:
            alloc(5 * MIB)
        lines += [f"f {block}" for block in work]
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def main():
    granule, folder = os.path.abspath(sys.argv[1]), Path(sys.argv[2]).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clean = {name: value for name, value in os.environ.items() if "ALLOC_CONF" not in name and name != "GRANULE_CONF"}

    def run(*args):
        done = subprocess.run([granule, *map(str, args)], cwd=folder, env=clean, capture_output=True, text=True)
        assert done.returncode == 0, f"granule {args}: {done.stderr}"
        return json.loads(done.stdout)

    def export(file, name, *more):
        answer = run("export", file, "--parquet", folder / "runs" / name, "--run", name, "--json", *more)
        tables = {Path(entry["path"]).stem: entry["entries"] for entry in answer["files"]}
        assert sorted(tables) == ["allocations", "events", "iterations", "runs", "segments", "sites"], tables

    # Two snapshots with call sites, a leaking trace, and the bundled training run under three settings.
    one = [("forward", 10, 4 * MIB), ("forward", 10, 6 * MIB), ("loss", 20, MIB), ("optimizer", 30, 8 * MIB)]
    two = [("forward", 10, 3 * MIB), ("optimizer", 30, 16 * MIB)]
    snapshot(folder / "one.pickle.gz", one, {3})
    snapshot(folder / "two.pickle.gz", two, {1})
    leak = 1_234_944
    leaking_trace(folder / "leaky.trace.gz", 12, leak)
    export("one.pickle.gz", "one")
    export("two.pickle.gz", "two")
    export("leaky.trace.gz", "leaky")
    replays = {}
    for number, conf in enumerate(SETTINGS):
        more = ["--conf", conf] if conf else []
        replays[conf] = run("replay", BUNDLED, "--json", *more)
        export(BUNDLED, f"resnet{number}", *more)

    os.chdir(folder)
    ask = queries()

    def rows(sql):
        result = duckdb.sql(sql)
        return [dict(zip(result.columns, row)) for row in result.fetchall()]

    # The peak of both snapshots is where everything is live.
    found = [(row["function"], row["line"], row["runs"], row["blocks"], row["bytes"]) for row in rows(ask["Which call"])]
    assert found == [
        ("optimizer", 30, 2, 2, 24 * MIB),
        ("forward", 10, 2, 3, 13 * MIB),
        ("loss", 20, 1, 1, MIB),
    ], found

    # What is kept in each of the iterations 2 to 10, and neither what is kept in the first nor a healthy run.
    found = [(row["run"], row["size"], row["iterations"], row["bytes"]) for row in rows(ask["What leaks"])]
    assert found == [("leaky", leak, 9, 9 * leak)], found

    # The same ratios as from the replays.
    answers = {row["settings"]: row for row in rows(ask["How much"])}
    for conf in SETTINGS[1:]:
        live, reserved = (replays[conf][f"{name}_bytes_peak"] for name in ("requested", "reserved"))
        row = answers[conf]
        assert (row["runs"], row["bytes_lost"], row["refusals"]) == (1, reserved - live, 0), row
        assert abs(row["worst_ratio"] - reserved / live) < 1e-9, row
    # Without settings there are the snapshots, too, of which 64 MiB were held.
    row = answers["(default)"]
    live, reserved = (replays[""][f"{name}_bytes_peak"] for name in ("requested", "reserved"))
    [leaky] = rows("SELECT peak_reserved - peak_live AS lost FROM 'runs/leaky/runs.parquet'")
    lost = reserved - live + 64 * MIB - 19 * MIB + 64 * MIB - 19 * MIB + leaky["lost"]
    assert (row["runs"], row["bytes_lost"]) == (4, lost), (row, lost)

    # Tables agree with each other: what the allocations say is what the run and its iterations say.
    [row] = rows("""
        SELECT any_value(r.allocations) = count(*) AS counted, any_value(r.bytes_requested) = sum(a.size) AS summed,
               any_value(r.live_at_end) = sum(a.size) FILTER (a.live_at_end) AS kept
        FROM 'runs/resnet0/allocations.parquet' a JOIN 'runs/resnet0/runs.parquet' r ON r.run = a.run""")
    assert all(row.values()), row
    found = rows("SELECT iteration, live_at_begin FROM 'runs/resnet0/iterations.parquet' ORDER BY iteration")
    assert len(found) == 30 and [row["iteration"] for row in found] == list(range(30)), found
    [row] = rows("""
        SELECT count(*) FILTER (action = 'alloc') AS allocs, count(*) FILTER (action = 'free_requested') AS frees,
               bool_and(time_us BETWEEN 1700000000000000 AND 1700000000001000) AS timed
        FROM 'runs/one/events.parquet'""")
    assert row == {"allocs": 4, "frees": 3, "timed": True}, row
    print(f"the {len(ask)} queries of docs/tables.md answer as they must, on {len(os.listdir('runs'))} runs")


if __name__ == "__main__":
    main()
