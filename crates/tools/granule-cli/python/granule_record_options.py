"""GRANULE_RECORD: where, what, and how much. The same words as in Granule's library and on the command line."""

import os

UNITS = {"": 0, "b": 0, "k": 10, "kib": 10, "m": 20, "mib": 20, "g": 30, "gib": 30, "t": 40, "tib": 40}


class Options:
    def __init__(self, directory):
        # Programs change their directory.
        self.directory = os.path.abspath(directory)
        self.rotate = None
        self.keep = 8
        self.max_entries = None
        self.stacks = "python"
        self.on_oom = False

    @classmethod
    def parse(cls, text):
        """`DIRECTORY[,key=value]...`. ValueError says which word is wrong."""
        directory, *words = (word.strip() for word in text.split(","))
        if not directory:
            raise ValueError("GRANULE_RECORD begins with a directory, as in GRANULE_RECORD=recording,keep=4")
        options = cls(directory)
        for word in words:
            key, _, value = (part.strip() for part in word.partition("="))
            try:
                setattr(options, key, READERS[key](value))
            except (KeyError, ValueError):
                raise ValueError(
                    f"GRANULE_RECORD: {word!r} is not understood: there are rotate=SIZE (256MiB), keep=N, max_entries=N, "
                    "stacks=none|python|all, on_oom=True|False"
                ) from None
        return options


def number(text):
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def positive(text):
    value = number(text)
    if value == 0:
        raise ValueError
    return value


def size(text):
    digits = text[: len(text) - len(text.lstrip("0123456789"))]
    shift = UNITS[text[len(digits) :].strip().lower()]
    return positive(digits) << shift


def one_of(*names):
    def read(text):
        if text not in names:
            raise ValueError
        return text

    return read


READERS = {
    "rotate": size,
    "keep": number,
    "max_entries": positive,
    "stacks": one_of("none", "python", "all"),
    "on_oom": lambda text: one_of("True", "False")(text) == "True",
}
