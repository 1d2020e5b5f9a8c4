"""Files of any bytes, and options of any words: an answer, or an error of the module's own.

The inputs are those that `cargo xtask fuzz` has kept for the readers of traces and snapshots, changed in ways that are the same
each time. Nothing here sees which code an input reaches.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import granule_alloc as granule
import pytest
from conftest import ROOT

CORPUS = ROOT / "tests/fuzz/corpus"
#: Changed files, and seconds after which no more are tried.
FILES, MOST_SECONDS = 200, 5.0

#: Words that options take, and some that none takes.
NUMBERS = ["1", "0", "-1", "1e400", "64MiB"]
WORDS = [*NUMBERS, "peak", "end", "oom", "pytorch", "granule", "expandable_segments:True", "", "\0", "é"]


def kept(target: str) -> Iterator[bytes]:
    """The kept inputs: each behind its length."""
    packed = (CORPUS / f"{target}.bin").read_bytes()
    at = 0
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "little")
        yield packed[at + 4 : end]
        at = end


def changed(content: bytes, dice: random.Random) -> bytes:
    some = bytearray(content)
    for _ in range(dice.randrange(3)):
        at = dice.randrange(len(some) + 1)
        if dice.random() < 0.3:
            some.insert(at, dice.randrange(256))
        elif dice.random() < 0.2:
            del some[at:]
        elif at < len(some):
            some[at] = dice.randrange(256)
    return bytes(some)


def questions(run: granule.Run, path: Path, dice: random.Random) -> list[Callable[[], Any]]:
    """Every way to ask, with words that may be wrong."""
    word = dice.choice(WORDS)
    return [
        lambda: run.inspect(at=word),
        lambda: run.inspect(conf=word, capacity=dice.choice(WORDS)),
        lambda: run.compare(run),
        lambda: run.replay(policy=word, capacity="64MiB"),
        lambda: run.replay(conf=word, capacity="64MiB", lag=dice.randrange(4)),
        lambda: run.whatif(capacity=["64MiB", word]),
        lambda: run.min_capacity(step=word),
        lambda: run.plan(path.with_name("plan"), capacity=word, solver="greedy"),
        lambda: run.check(max_reserved=word),
        lambda: run.report(path.with_name("page.html"), title=word, whatif=False),
        lambda: run.export(parquet=path.with_name("tables"), overwrite=True, run=word),
        lambda: run.export(perfetto=path.with_name("perfetto"), overwrite=True),
        lambda: [run.runs, run.iterations, run.allocations, run.segments, run.sites, run.events],
        lambda: run.table(word),
        lambda: (run.curve(dice.randrange(50)), run._repr_html_(), repr(run)),
    ]


def survived(ask: Callable[[], Any]) -> bool:
    """Whether there was an answer; an error must be one that programs can name, and say something."""
    try:
        ask()
    except (granule.GranuleError, KeyError, ValueError) as error:
        assert len(str(error)) > 0, repr(error)
        return False
    return True


@pytest.mark.filterwarnings("ignore")
def test_files_of_any_bytes_and_options_of_any_words(tmp_path: Path) -> None:
    dice = random.Random(7)
    contents = [*kept("snapshot"), *kept("trace")]
    assert contents
    path, began, answers, refused = tmp_path / "file", time.monotonic(), 0, 0
    for _ in range(FILES):
        if time.monotonic() - began > MOST_SECONDS:
            break
        path.write_bytes(changed(dice.choice(contents), dice))
        try:
            run = granule.load(path)
        except granule.InputError as error:
            assert str(path) in str(error)
            refused += 1
            continue
        answers += sum(survived(ask) for ask in questions(run, path, dice))
    assert answers > 0 and refused > 0, (answers, refused)
