"""Memory over time, as a picture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ._native import History
from ._units import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEIGHT = 800, 240
LEFT, RIGHT, TOP, BOTTOM = 80, 12, 12, 40
#: Lines at refused requests beyond this many are a wall.
REFUSALS = 50


def html(history: History, title: str) -> str:
    """The picture with its figures, for a notebook."""
    points = history.curve(WIDTH - LEFT - RIGHT)
    live, reserved = max(point[1] for point in points), max(point[2] for point in points)
    figures = [f"peak requested {size(live)}", f"peak reserved {size(reserved)}"]
    refusals = history.refusals()
    if refusals:
        figures.append(f"{len(refusals)} refused, the first of {size(refusals[0][1])}")
    return (
        f"<div><b>{escape(title)}</b>: {', '.join(figures)}; {history.length} entries"
        f"{svg(history, points, max(live, reserved, 1))}</div>"
    )


def svg(history: History, points: list[tuple[int, int, int]], most: int) -> str:
    """Areas of what was reserved and what was live, with iterations and refusals."""
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    length = max(history.length, 1)

    def x(at: int) -> float:
        return LEFT + (right - LEFT) * at / length

    def y(count: int) -> float:
        return bottom - (bottom - TOP) * count / most

    def area(column: int, colour: str) -> str:
        ends = [point[0] for point in points[1:]] + [length]
        steps = "".join(
            f"H{x(point[0]):.1f}V{y(point[column]):.1f}H{x(end):.1f}"
            for point, end in zip(points, ends, strict=True)
        )
        return f'<path d="M{LEFT} {bottom}{steps}V{bottom}Z" fill="{colour}"/>'

    parts = [area(2, "#c9d8ea"), area(1, "#3b6fb0")]
    for index, (at, number) in enumerate(_spread(history.iterations(), 12)):
        name = f"iteration {number}" if index == 0 else number
        parts.append(f'<path d="M{x(at):.1f} {bottom}v5" stroke="#888"/>')
        parts.append(
            f'<text x="{x(at):.1f}" y="{bottom + 16}" text-anchor="middle" font-size="11" fill="#888">{name}</text>'
        )
    for at, _ in history.refusals()[:REFUSALS]:
        parts.append(f'<path d="M{x(at):.1f} {TOP}V{bottom}" stroke="#c0392b"/>')
    for count in (0, most // 2, most):
        parts.append(
            f'<text x="{LEFT - 6}" y="{y(count) + 4:.1f}" text-anchor="end" font-size="11" fill="#888">{size(count)}</text>'
        )
    legend = ("■ live", "#3b6fb0", LEFT), ("■ reserved", "#8fb0d6", LEFT + 60), ("| refused", "#c0392b", LEFT + 140)
    for text, colour, left in legend:
        parts.append(f'<text x="{left}" y="{HEIGHT - 6}" font-size="11" fill="{colour}">{text}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" role="img" '
        f'aria-label="memory over time">{"".join(parts)}</svg>'
    )


def _spread(marks: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    step = max(1, -(-len(marks) // most))
    return marks[::step]


def plot(history: History, title: str, ax: Axes | None, points: int) -> Axes:
    """The same by matplotlib."""
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "plot() needs matplotlib: pip install matplotlib; without it, a run shows its picture in a notebook, and "
                "run.curve() has the figures"
            ) from error
        _, ax = plt.subplots(figsize=(10, 3))
    curve = history.curve(points)
    at = [point[0] for point in curve] + [history.length]
    for column, label, colour in ((2, "reserved", "#c9d8ea"), (1, "live", "#3b6fb0")):
        figures = [point[column] / 2**30 for point in curve]
        ax.fill_between(at, [*figures, figures[-1]], step="post", label=label, color=colour)
    for moment, _ in history.refusals()[:REFUSALS]:
        ax.axvline(moment, color="#c0392b", linewidth=1)
    ax.set_title(title)
    ax.set_xlabel("entries of the history")
    ax.set_ylabel("GiB")
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")
    return ax
