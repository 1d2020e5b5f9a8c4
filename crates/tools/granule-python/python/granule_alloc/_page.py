"""The page of a run, in a notebook."""

from __future__ import annotations

from html import escape


class Page:
    """A page that a notebook shows. `html` is its text."""

    def __init__(self, html: str, height: int) -> None:
        self.html = html
        self.height = height

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 1px solid #ddd"
        # Of its own: what is in the page reaches nothing of the notebook.
        sandbox = "allow-scripts allow-downloads allow-modals"
        return f'<iframe sandbox="{sandbox}" srcdoc="{escape(self.html)}" style="{style}"></iframe>'

    def __repr__(self) -> str:
        return f"<granule_alloc.Page of {len(self.html)} characters; a notebook shows it>"
