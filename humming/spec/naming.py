"""Words of messages: the nearest legal name for a mistyped one, so that every error can offer it,
and numbers of things. Nothing else."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, legal: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the legal name nearest to `name`, or an empty string."""
    near = difflib.get_close_matches(name, list(legal), n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else ""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Such as "1 layer" and "2 layers": more than one are `many`, else `one` and an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
