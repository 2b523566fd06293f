"""A YAML file as plain data that knows its lines; what the data must look like is schema.py.

The doorway to PyYAML. Only YAML's plain values are read: mappings with text keys, sequences, texts,
integers, floats, booleans and null. Size, depth and the number of values (aliases counted each time
they are used) are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import yaml

from humming.errors import SpaceError

MAX_BYTES, MAX_VALUES, MAX_DEPTH, MAX_KEY = 65536, 5000, 12, 60

Route = tuple[Union[str, int], ...]  # noqa: UP007  (evaluated at import, on Python 3.10 too)
"""Where a value stands: the keys and indexes that lead to it from the top."""

_PLAIN = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
_PYYAML_RAISES = (yaml.YAMLError, ValueError, LookupError, OverflowError, RecursionError)
"""What PyYAML lets through on malformed input.

Its own errors, and those of chr(), int() and deep recursion.
"""


@dataclass(frozen=True)
class Problem:
    """Something wrong in a file.

    The file as shown to the user, the line from 1 (0 = the whole file), the sentence.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}" if self.line else f"{self.file}: {self.text}"


@dataclass
class Document:
    """What a file holds, and where.

    `lines` has the line of each value, `key_lines` that of each mapping's key.
    """

    file: str
    data: Any = None
    lines: dict[Route, int] = field(default_factory=dict)
    key_lines: dict[Route, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, route: Route, text: str, at_key: bool = False) -> Problem:
        """The problem at `route`, or at the nearest place above it that the file has."""
        while route and route not in self.lines:
            route = route[:-1]
        line = self.key_lines.get(route) if at_key else None
        return Problem(self.file, line or self.lines.get(route, 1), text)


def shown(path: Path) -> str:
    """`path` as error messages show it: a built-in space from its package down, others as given."""
    package = Path(__file__).parent
    return str(path.relative_to(package)) if path.is_relative_to(package) else str(path)


def read_document(path: Path) -> Document:
    """The YAML file at `path`; its duplicate keys and values of foreign types stand in `problems`.

    Raises SpaceError with file and line where it cannot be read at all: no such file, not UTF-8,
    not YAML, too large, too deep.
    """
    document = Document(shown(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpaceError(f"{document.file}: cannot be read: {reason}; name a space file") from None
    if len(raw) > MAX_BYTES:
        raise SpaceError(
            f"{document.file}: a space file has at most {MAX_BYTES} bytes; this is longer"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SpaceError(
            f"{document.file}:{line}: a space file is UTF-8 text; this is not"
        ) from None
    root = _compose(text, document.file)
    if root is None:
        raise SpaceError(
            f"{document.file}:1: the file is empty; it must hold a mapping with family"
        )
    document.data = _Walk(document).value(root, ())
    return document


def _compose(text: str, file: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        return node
    except _PYYAML_RAISES as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        position = getattr(error, "position", None)
        line = 1
        if mark is not None:
            line = mark.line + 1
        elif isinstance(position, int):
            line = text.count("\n", 0, position) + 1
        reason = getattr(error, "problem", None) or getattr(error, "reason", None)
        if isinstance(error, RecursionError):
            reason = f"a space file nests at most {MAX_DEPTH} deep"
        raise SpaceError(
            str(Problem(file, line, f"not valid YAML: {reason or 'a value cannot be read'}"))
        ) from None


class _Walk:
    """Turns composed nodes into plain data, noting lines and problems in the document."""

    def __init__(self, document: Document) -> None:
        self.document, self.count = document, 0
        self.scalars = yaml.constructor.SafeConstructor()

    def value(self, node: yaml.Node, route: Route) -> Any:
        line = node.start_mark.line + 1
        self.document.lines[route] = line
        self.count += 1
        if self.count > MAX_VALUES:
            self.fail(
                line, f"a space file has at most {MAX_VALUES} values, aliases counted each time"
            )
        if len(route) > MAX_DEPTH:
            self.fail(line, f"a space file nests at most {MAX_DEPTH} deep")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, route)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*route, index)) for index, item in enumerate(node.value)]
        return self.scalar(node, line)

    def mapping(self, node: yaml.MappingNode, route: Route) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = key_node.value
            if not isinstance(key, str):
                self.fail(line, "a key must be a text, but got a list or a mapping")
            if len(key) > MAX_KEY or not key.isprintable():
                self.note(
                    line,
                    f"{key[:MAX_KEY]!r} is no key; a key has up to {MAX_KEY} printable characters",
                )
                continue
            place = (*route, key)
            if key in data:
                first = self.document.key_lines[place]
                self.note(line, f"duplicate key {key!r}; it stands on line {first} already")
                continue
            self.document.key_lines[place] = line
            data[key] = self.value(value_node, place)
        return data

    def scalar(self, node: yaml.Node, line: int) -> Any:
        text = str(node.value)
        wrong = "is no text, integer or list; put texts into quotes"
        if not " ".join(text.split()).isprintable():
            wrong = "has a character that cannot be printed; take it out"
        elif node.tag in _PLAIN:
            try:
                return self.scalars.construct_object(node)
            except _PYYAML_RAISES:
                pass
        self.note(line, f"{text[:60]!r} {wrong}")
        return text

    def note(self, line: int, text: str) -> None:
        self.document.problems.append(Problem(self.document.file, line, text))

    def fail(self, line: int, text: str) -> None:
        raise SpaceError(str(Problem(self.document.file, line, text)))
