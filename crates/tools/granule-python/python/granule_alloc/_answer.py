"""Answers: JSON objects whose members are attributes, too."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from ._units import measured


class Answer(dict[str, Any]):
    """An object of an answer. `answer.peak` and `answer["peak"]` are the same."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            there = ", ".join(self) or "nothing"
            raise AttributeError(f"the answer has no {name}; it has {there}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


A = TypeVar("A", bound=Answer)


def read(text: str, kind: type[A]) -> A:
    """The answer in a text of JSON."""

    def made(pairs: list[tuple[str, Any]]) -> Answer:
        return Answer((name, measured(name, value)) for name, value in pairs)

    return kind(json.loads(text, object_pairs_hook=made))
