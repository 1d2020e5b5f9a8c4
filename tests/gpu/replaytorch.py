"""Recorded programs asked again of torch on the real driver, request for request: replaytorch.py MODE FOLDER

What is compared: figures (equal under the pytorch policy), and the time that all requests took, driver calls included."""
import gzip
import sys
import time
from pathlib import Path

import common
from common import TINY, say


def events_of(path):
    found, streams, ids = [], 1, 0
    with gzip.open(path, "rt") as file:
        next(file)  # what it says of itself
        for line in file:
            kind, *words = line.split()
            words = [int(word) for word in words]
            found.append((kind, *words))
            if kind == "a":
                streams, ids = max(streams, words[2] + 1), words[0] + 1
            elif kind == "r":
                streams = max(streams, words[1] + 1)
    return found, streams, ids


def replay(events, streams, ids):
    import torch

    live, refused, current, marks = [None] * ids, 0, 0, []
    torch.cuda.set_stream(streams[0])
    u8, empty = torch.uint8, torch.empty
    start = time.perf_counter()
    for event in events:
        kind = event[0]
        if kind == "a":
            if event[3] != current:
                current = event[3]
                torch.cuda.set_stream(streams[current])
            try:
                live[event[1]] = empty(event[2], dtype=u8, device="cuda")
            except torch.OutOfMemoryError:
                refused += 1
        elif kind == "f":
            live[event[1]] = None
        elif kind == "r":
            if live[event[1]] is not None:
                live[event[1]].record_stream(streams[event[2]])
        elif kind == "e":
            torch.cuda.empty_cache()
        elif kind == "i":
            marks.append(time.perf_counter() - start)
    took = time.perf_counter() - start
    torch.cuda.set_stream(streams[0])
    return took, marks, refused, live


def body():
    mode, folder = sys.argv[1], Path(sys.argv[2])
    common.install(mode)
    import torch

    torch.cuda.init()
    torch.empty(1, device="cuda")
    traces = {path.name.split(".")[0]: events_of(path) for path in sorted(folder.glob("*.trace.gz"))}
    common.turn()
    for name, (events, count, ids) in traces.items():
        events = events[:3000] if TINY else events
        common.fresh()
        streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(count - 1))]
        took, marks, refused, live = replay(events, streams, ids)
        cold = common.figures()
        del live
        torch.cuda.synchronize()
        # With everything cached; the least of some turns, since other programs may run on the machine.
        again = []
        for _ in range(4):
            took_again, _, _, live = replay(events, streams, ids)
            del live
            again.append(took_again)
        again = min(again)
        say(step="replaytorch", mode=mode, trace=name, events=len(events), cold_s=round(took, 4), warm_s=round(again, 4), refused=refused,
            first_iterations_s=[round(b - a, 4) for a, b in zip(marks, marks[1:])][:6], figures=cold)


if __name__ == "__main__":
    common.main(body)
