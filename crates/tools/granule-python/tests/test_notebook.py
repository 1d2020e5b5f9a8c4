"""What a notebook shows, and what else runs while Granule works."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import granule_alloc as granule
import pytest


def test_the_picture(snapshot: Path) -> None:
    html = granule.load(snapshot)._repr_html_()
    picture = ElementTree.fromstring(html[html.index("<svg") : html.index("</svg>") + 6])
    paths = [part for part in picture if part.tag.endswith("path")]
    assert len(paths) > 2, "two areas, and marks"
    assert "peak requested" in html and "refused, the first of" in html


def test_names_are_no_markup(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "<b>&.trace.gz"
    path.write_bytes(trace.read_bytes())
    assert "<b>&lt;b&gt;&amp;.trace.gz</b>" in granule.load(path)._repr_html_()


def test_the_page_is_shown_inline(snapshot: Path) -> None:
    page = granule.load(snapshot).show(height=500)
    assert page.html.startswith("<!doctype html>") and "characters; a notebook shows it" in repr(page)
    frame = re.fullmatch(r'<iframe sandbox="[^"]*" srcdoc="([^"]*)" style="([^"]*)"></iframe>', page._repr_html_())
    assert "allow-same-origin" not in page._repr_html_()
    assert frame is not None and unescape(frame[1]) == page.html and "height: 500px" in frame[2]


def test_the_curve_has_the_peaks(run: granule.Run) -> None:
    figures = run.inspect().run
    for points in (1, 7, 1000, 10**9):
        curve = run.curve(points)
        assert len(curve) <= points and curve[0][0] == 0
        assert max(point[1] for point in curve) == figures.peak_live
        assert max(point[2] for point in curve) == figures.peak_reserved


def test_plot(run: granule.Run) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    axes = run.plot()
    assert axes.get_ylabel() == "GiB" and axes.get_ylim()[1] > 10
    assert run.plot(axes) is axes


def test_plot_without_matplotlib(run: granule.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        run.plot()


def test_python_goes_on_meanwhile(run: granule.Run) -> None:
    done = threading.Event()
    turns = 0

    def other() -> None:
        nonlocal turns
        while not done.is_set():
            time.sleep(0.001)
            turns += 1

    thread, calls = threading.Thread(target=other), 0
    began = time.monotonic()
    thread.start()
    while time.monotonic() - began < 1:
        run.whatif(capacity="12GiB")
        calls += 1
    done.set()
    thread.join()
    # A call that keeps the interpreter lets it turn a time or two, whatever the machine's speed.
    assert turns > 5 * calls, f"{turns} turns in {calls} calls"


def test_progress_is_shown(run: granule.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tqdm = pytest.importorskip("tqdm.auto")
    shown: list[tuple[str, int, int | None]] = []

    class Bar:
        def __init__(self, desc: str, total: int | None, initial: int, leave: bool, bar_format: str) -> None:
            self.desc, self.total, self.n = desc, total, initial

        def refresh(self) -> None:
            shown.append((self.desc, self.n, self.total))

        def close(self) -> None:
            pass

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    monkeypatch.setattr("granule_alloc._work.PATIENCE", 0.0)
    monkeypatch.setattr("granule_alloc._work.LOOK", 0.01)
    run.whatif(capacity="12GiB", policy="pytorch")
    replaying = [(done, total) for what, done, total in shown if what == "replaying" and total]
    assert replaying and all(done <= total for done, total in replaying)
    assert replaying == sorted(replaying)


def test_ctrl_c_is_heard(trace: Path) -> None:
    program = f"""
import granule_alloc as granule
run = granule.load({str(trace)!r})
print("working", flush=True)
try:
    while True:
        run.whatif()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "working\n"
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.wait() == 0


def test_two_threads_ask_at_once(run: granule.Run) -> None:
    answers: list[object] = []
    threads = [threading.Thread(target=lambda: answers.append(run.inspect(at="peak"))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 2 and answers[0] == answers[1]
