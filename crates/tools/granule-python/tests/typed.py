"""A program with types: mypy --strict accepts it as it is, and finds what it marks as wrong."""

from __future__ import annotations

import granule_alloc as granule
from granule_alloc import answers


def least_change(path: str, capacity: str) -> str | None:
    run: granule.Run = granule.load(path, device=None)
    found: answers.Whatif = run.whatif(capacity=[capacity, 24 << 30])
    for verdict in found.verdicts:
        if verdict.least_change is not None:
            return verdict.least_change.conf
    return None


def peak(run: granule.Run) -> int:
    replayed = run.replay(policy="granule", lag=100)
    rows: int = run.allocations.num_rows
    return replayed.reserved_bytes_peak + rows


def wrong(run: granule.Run) -> None:
    run.replay(lag="many")  # type: ignore[arg-type]
    run.replay().workload + 1  # type: ignore[operator]
    run.whatif().verdicts[0].least_change.conf  # type: ignore[union-attr]
