#!/usr/bin/env python3
"""Makes python/granule_alloc/answers.py of docs/schemas: a class for each answer, with the types of what is in it.

`stubs.py --check` says whether the file is what the schemas give.
"""

from __future__ import annotations

import json
import keyword
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCHEMAS = HERE.parents[2] / "docs" / "schemas"
TARGET = HERE / "python" / "granule_alloc" / "answers.py"

#: The commands that a run has methods for.
COMMANDS = ["replay", "whatif", "min-capacity", "plan", "inspect", "report", "check", "export"]

HEAD = '''"""What a run answers: the objects of `--json`, by attribute and by key. Sizes are bytes.

Made of docs/schemas by `cargo xtask codegen`. Do not edit.
"""

from __future__ import annotations

from typing import Any

from ._answer import Answer
from ._units import Bytes, Nanoseconds

__all__ = [
'''

sys.path.insert(0, str(HERE / "python" / "granule_alloc"))
from _units import BYTES, NANOSECONDS  # noqa: E402: the package itself needs what is built

SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class Classes:
    """The classes of one schema."""

    def __init__(self, command: str, root: dict[str, Any]) -> None:
        self.prefix = pascal(command)
        self.root = root
        self.named: dict[str, str] = {}
        self.bodies: dict[str, str] = {}

    def type(self, schema: dict[str, Any], name: str) -> str:
        """The type of what the schema allows; `name` is for a class, if it needs one."""
        if "$ref" in schema:
            key = schema["$ref"].rsplit("/", 1)[1]
            return self.type(self.root["$defs"][key], self.prefix + pascal(key))
        if "allOf" in schema:
            whole: dict[str, Any] = {"properties": {}, "required": []}
            for part in [*schema["allOf"], schema]:
                part = self.root["$defs"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
                whole["properties"].update(part.get("properties", {}))
            return self.object(whole, name)
        for several in ("anyOf", "oneOf"):
            if several in schema:
                return " | ".join(dict.fromkeys(self.type(one, name) for one in schema[several]))
        if "const" in schema or "enum" in schema:
            values = schema.get("enum", [schema.get("const")])
            return " | ".join(dict.fromkeys(type(value).__name__ if value is not None else "None" for value in values))
        if "properties" in schema:
            return self.object(schema, name)
        if "type" not in schema:
            return "Any"
        kind = schema["type"]
        if isinstance(kind, list):
            return " | ".join(self.type({**schema, "type": one}, name) for one in kind)
        if kind == "array":
            return f"list[{self.type(schema.get('items', {}), singular(name))}]"
        if kind == "object":
            return f"dict[str, {self.type(schema.get('additionalProperties', {}), singular(name))}]"
        return SIMPLE[kind]

    def object(self, schema: dict[str, Any], name: str) -> str:
        key = json.dumps(schema, sort_keys=True)
        if key in self.named:
            return self.named[key]
        while name in self.bodies:
            name += "_"
        self.named[key] = name
        self.bodies[name] = ""
        lines = []
        for field, value in schema["properties"].items():
            what = self.type(value, name + pascal(field))
            unit = "Bytes" if field in BYTES else "Nanoseconds" if field in NANOSECONDS else "int"
            what = " | ".join(unit if one == "int" else one for one in what.split(" | "))
            # What has a meaning in Python is there by key only.
            if field.isidentifier() and not keyword.iskeyword(field) and not hasattr(dict, field):
                lines.append(f"    {field}: {what}\n")
        self.bodies[name] = f"class {name}(Answer):\n" + ("".join(lines) or "    pass\n")
        return name


def pascal(text: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in text.replace("-", "_").split("_"))


def singular(name: str) -> str:
    if name.endswith("ies"):
        return name[:-3] + "y"
    return name if name.endswith("ss") else name.removesuffix("s")


def made() -> str:
    names, bodies = [], []
    for command in COMMANDS:
        schema = json.loads((SCHEMAS / f"{command}.json").read_text())
        classes = Classes(command, schema)
        variants = schema.get("oneOf", [schema])
        for variant, name in zip(variants, [classes.prefix, classes.prefix + "Comparison"], strict=False):
            classes.type(variant, name)
        names += classes.bodies
        bodies += classes.bodies.values()
    head = HEAD + "".join(f'    "{name}",\n' for name in sorted(names)) + "]\n"
    return head + "".join(f"\n\n{body}" for body in bodies)


def main() -> None:
    if "--check" not in sys.argv:
        TARGET.write_text(made())
    elif TARGET.read_text() != made():
        sys.exit(f"{TARGET} is not what docs/schemas gives: run {Path(__file__).name}")


if __name__ == "__main__":
    main()
