"""Which module names a checkpoint's list means: exact, `re:`, glob and part-of-path dialects. No
formats here.

A list never matches inside a word: "gate" means `mlp.gate`, not `mlp.gate_proj`, and "layers.1" is
not `layers.10`. That is what writers of such lists mean, though some engines match bare substrings.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.workload.values import fault

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class NameList:
    """Names and patterns. `whole` are full names, `paths` runs of a name's dotted steps, `patterns`
    match from the start.
    """

    whole: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    patterns: tuple[re.Pattern[str], ...] = ()
    globs: tuple[re.Pattern[str], ...] = ()

    def matches(self, names: Sequence[str]) -> bool:
        """Whether any of `names`, the names that one module goes by, is meant."""
        return any(self._matches(name) for name in names)

    def _matches(self, name: str) -> bool:
        return (
            name in self.whole
            or (bool(self.paths) and not self.paths.isdisjoint(_runs(name)))
            or any(pattern.match(name) for pattern in self.patterns)
            or any(glob.match(f".{name}.") for glob in self.globs)
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
    return NameList(whole=frozenset(plain), patterns=patterns)


def path_names(entries: Iterable[str], file: str, key: str) -> NameList:
    """Everyone else's dialect: a full name or a run of its dotted steps, a glob over the same, or
    `re:`.
    """
    plain, patterns = _parted(entries, file, key)
    paths = [entry.strip(".") for entry in plain]
    globs = [fnmatch.translate(f"*.{path}.*") for path in paths if _WILD.search(path)]
    steps = frozenset(path for path in paths if path and not _WILD.search(path))
    return NameList(
        paths=steps, patterns=patterns, globs=tuple(compiled(glob, file, key) for glob in globs)
    )


def _parted(
    entries: Iterable[str], file: str, key: str
) -> tuple[list[str], tuple[re.Pattern[str], ...]]:
    items = list(entries)
    plain = [entry for entry in items if not entry.startswith("re:")]
    regexes = [entry.removeprefix("re:") for entry in items if entry.startswith("re:")]
    return plain, tuple(compiled(regex, file, key) for regex in regexes)


def compiled(regex: str, file: str, key: str) -> re.Pattern[str]:
    """`regex` compiled; ModelError where it is none."""
    try:
        return re.compile(regex)
    except (re.error, OverflowError, RecursionError, ValueError):
        raise fault(file, key, "made of valid regular expressions", regex) from None
