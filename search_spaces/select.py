"""Choosing the space for a family, a device and a format. Reading spaces is load.py."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from humming.errors import SpaceError
from humming.spec.device import Device
from search_spaces.model import SearchSpace

Fit = tuple[int, int]
"""How specific a pattern is: (1 if it has no wildcard, literal characters)."""


def _fit(patterns: Iterable[str], name: str) -> Fit | None:
    """The most specific of `patterns` that `name` matches; None where none does."""
    fits = [
        (int("*" not in pattern and "?" not in pattern), sum(c not in "*?" for c in pattern))
        for pattern in patterns
        if fnmatchcase(name, pattern)
    ]
    return max(fits, default=None)


def select(
    spaces: Iterable[SearchSpace], family: str, device: Device, format: str, op: str = "dense"
) -> SearchSpace:
    """The space of `family` that fits `op`, `device.arch` and `format` best.

    A pattern without wildcards beats one with, then more literal characters win; the op counts
    first, then the arch, then the format. Raises SpaceError where no space fits, or where two fit
    equally well.
    """
    spaces = [space for space in spaces if space.family == family]
    fits: list[tuple[tuple[Fit, Fit, Fit], SearchSpace]] = []
    for space in spaces:
        arch, name = _fit(space.arch, device.arch), _fit(space.formats, format)
        of_op = _fit(space.ops, op)
        if arch is not None and name is not None and of_op is not None:
            fits.append(((of_op, arch, name), space))
    if not fits:
        known = "; ".join(
            f"{space.name} is for arch {', '.join(space.arch)}, formats {', '.join(space.formats)}"
            for space in spaces
        )
        raise SpaceError(
            f"no search space of family '{family}' fits arch '{device.arch}' and format '{format}'"
            f" ({known or 'the family has none'}); widen applies_to or write a space"
        )
    best = max(fit for fit, _ in fits)
    winners = [space for fit, space in fits if fit == best]
    if len(winners) > 1:
        raise SpaceError(
            f"{' and '.join(space.path or space.name for space in winners)} fit family '{family}', "
            f"arch '{device.arch}' and format '{format}' equally well; narrow applies_to of one, "
            f"or give it the file name of the other to replace that"
        )
    return winners[0]
