"""Which module names a checkpoint's list means: exact, `re:`, glob, part-of-path and substring
dialects. No formats here.

But for AWQ, whose tools match bare substrings, a list never matches inside a word: "gate" means
`mlp.gate`, not `mlp.gate_proj`, and "layers.1" is not `layers.10`. That is what writers of such
lists mean, though some engines match otherwise.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from humming.checkpoints.config import regexes
from humming.checkpoints.config.faults import fault
from humming.errors import ModelError

_WILD = re.compile(r"[*?\[]")
WORK_END = 4_000_000
"""Tries of patterns on names, weighed by their cost, after which a list is refused: some
seconds.
"""

Globs = Mapping[str, tuple[Callable[[str], object], ...]]


@dataclass(frozen=True)
class NameList:
    """Names and patterns. `whole` are full names, `paths` runs of a name's dotted steps, `patterns`
    match from the start, `globs` (by the number in them, if one stands alone between dots) match
    runs of steps, `substrings` stand anywhere.
    """

    file: str = ""
    key: str = ""
    whole: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    patterns: tuple[regexes.Regex, ...] = ()
    globs: Globs = field(default_factory=dict)
    substrings: tuple[str, ...] = ()
    work: list[int] = field(default_factory=lambda: [0], compare=False)

    def matches(self, names: Sequence[str]) -> bool:
        """Whether any of `names`, the names that one module goes by, is meant."""
        if self.whole and not self.whole.isdisjoint(names):
            return True
        if self.paths and any(not self.paths.isdisjoint(_runs(name)) for name in names):
            return True
        return any(self._matches(name) for name in names)

    def _matches(self, name: str) -> bool:
        for pattern in self.patterns:
            self._spend(pattern.cost)
            if pattern.match(name):
                return True
        if self.globs:
            dotted = f".{name}."
            for number in ("", *(step for step in name.split(".") if step.isdecimal())):
                for matches in self.globs.get(number, ()):
                    self._spend(2)
                    if matches(dotted):
                        return True
        return any(part in name for part in self.substrings)

    def _spend(self, cost: int) -> None:
        self.work[0] += cost
        if self.work[0] > WORK_END:
            raise ModelError(
                f"{self.file}: `{self.key}` must hold fewer or simpler patterns, but got some that "
                f"take too long to match; write names in full, or plan with --format alone"
            )


def _runs(name: str) -> list[str]:
    steps = name.split(".")
    ends = range(1, len(steps) + 1)
    return [".".join(steps[start:end]) for end in ends for start in range(end)]


def exact_names(entries: Iterable[str], file: str, key: str) -> NameList:
    """compressed-tensors' dialect: a full name, or `re:` and a regular expression that matches from
    the start.
    """
    plain, patterns = _parted(entries, file, key)
    return NameList(file, key, whole=frozenset(plain), patterns=patterns)


def path_names(entries: Iterable[str], file: str, key: str) -> NameList:
    """Everyone else's dialect: a full name or a run of its dotted steps, a glob over the same, or
    `re:`.
    """
    plain, patterns = _parted(entries, file, key)
    paths = [path for entry in plain if (path := entry.strip("."))]
    steps = frozenset(path for path in paths if not _WILD.search(path))
    globs = _globs([path for path in paths if _WILD.search(path)], file, key)
    return NameList(file, key, paths=steps, patterns=patterns, globs=globs)


def substring_names(entries: Iterable[str], file: str, key: str) -> NameList:
    """AWQ's dialect: any part of a name. A router ("gate") or a layer's number is a step of a name
    all the same, as no one means every gate_proj by the one, or layer 10 by 1.
    """
    plain, patterns = _parted(entries, file, key)
    steps = frozenset(entry.strip(".") for entry in plain if _is_step(entry))
    parts = tuple(dict.fromkeys(entry for entry in plain if entry and not _is_step(entry)))
    return NameList(file, key, paths=steps, patterns=patterns, substrings=parts)


def _is_step(entry: str) -> bool:
    last = entry.rpartition(".")[2]
    return last in ("gate", "router", "shared_expert_gate") or last.isdecimal()


def regex_names(regex: str, file: str, key: str) -> NameList:
    """One regular expression that matches from the start."""
    return NameList(file, key, patterns=(compiled(regex, file, key),))


def _globs(paths: Iterable[str], file: str, key: str) -> Globs:
    found: dict[str, list[Callable[[str], object]]] = {}
    for path in dict.fromkeys(paths):
        number = next((step for step in path.split(".") if step.isdecimal()), "")
        if len(path) > regexes.MAX_LENGTH or path.count("*") > 16:
            raise fault(file, key, "made of patterns with at most 16 stars", path)
        glob = re.compile(fnmatch.translate(f"*.{path}.*"))
        found.setdefault(number, []).append(glob.match)
    return {number: tuple(globs) for number, globs in found.items()}


def _parted(
    entries: Iterable[str], file: str, key: str
) -> tuple[list[str], tuple[regexes.Regex, ...]]:
    items = list(entries)
    plain = [entry for entry in items if not entry.startswith("re:")]
    patterns = dict.fromkeys(entry[3:] for entry in items if entry.startswith("re:"))
    return plain, tuple(compiled(regex, file, key) for regex in patterns)


def compiled(regex: str, file: str, key: str) -> regexes.Regex:
    """`regex` ready to be matched; ModelError where it is none, or one that could take for ever."""
    try:
        return regexes.compiled(regex)
    except ValueError as error:
        advice = f"it {error}; correct the file"
        expected = "made of valid regular expressions"
        raise fault(file, key, expected, regex, advice) from None
