"""How tokens fall on experts, as a name that a problem has: "uniform", "zipf1.2", or what was
recorded. No tensors here; drawing ids is moe/routing.py.

What a kernel sees of a routing is how uneven the experts' loads are, not which expert is the
busiest. So a routing is known by its shares: what part of all tokens the busiest 1/16, 2/16, .. of
the experts get. A recorded one is named by those, "shares" and sixteen numbers of two hex digits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from humming.errors import LegalityError

UNIFORM = "uniform"
PARTS = 16
"""Into so many equal parts experts are cut, the busiest first."""
_FULL = 255
_ZIPF = re.compile(r"zipf(\d+(?:\.\d+)?)")
_SHARES = re.compile(rf"shares((?:[0-9a-f]{{2}}){{{PARTS}}})")


def check_routing(routing: str) -> None:
    """Raises LegalityError where `routing` is no routing's name."""
    shares = _SHARES.fullmatch(routing)
    if routing == UNIFORM or _ZIPF.fullmatch(routing):
        return
    if shares:
        numbers = [int(shares[1][i : i + 2], 16) for i in range(0, 2 * PARTS, 2)]
        if numbers == sorted(numbers) and numbers[-1] == _FULL:
            return
    raise LegalityError(
        "routing must be 'uniform', 'zipf' and its exponent such as 'zipf1.2', or the name that "
        f"humming.record_routing gives, but got '{routing[:48]}'"
    )


@lru_cache(maxsize=256)
def loads_of(routing: str, experts: int) -> tuple[float, ...]:
    """The part of all routed tokens that each of `experts` gets, the busiest first; 1 in all."""
    check_routing(routing)
    zipf, shares = _ZIPF.fullmatch(routing), _SHARES.fullmatch(routing)
    if zipf:
        loads = [(rank + 1) ** -float(zipf[1]) for rank in range(experts)]
    elif shares:
        cut = [0.0, *(int(shares[1][i : i + 2], 16) / _FULL for i in range(0, 2 * PARTS, 2))]
        curve = [_between(cut, rank * PARTS / experts) for rank in range(experts + 1)]
        loads = sorted((b - a for a, b in pairwise(curve)), reverse=True)
    else:
        loads = [1.0] * experts
    total = sum(loads)
    return tuple(load / total for load in loads)


def routing_of(counts: Iterable[float]) -> str:
    """The name of the routing that gave experts so many tokens; "uniform" where all are alike, or
    nothing came."""
    ordered = sorted((float(count) for count in counts), reverse=True)
    total = sum(ordered)
    if not ordered or total <= 0:
        return UNIFORM
    curve = [0.0]
    for count in ordered:
        curve.append(curve[-1] + count / total)
    cut = [_between(curve, part * len(ordered) / PARTS) for part in range(1, PARTS + 1)]
    numbers = [min(_FULL, round(share * _FULL)) for share in cut]
    numbers[-1] = _FULL
    name = "shares" + "".join(f"{number:02x}" for number in numbers)
    even = "shares" + "".join(f"{round(_FULL * part / PARTS):02x}" for part in range(1, PARTS + 1))
    return UNIFORM if name == even else name


def distance(one: str, other: str, experts: int) -> float:
    """How far two routings are apart: the part of all tokens that would have to change experts, the
    busiest compared with the busiest; 0 .. 1."""
    pairs = zip(loads_of(one, experts), loads_of(other, experts), strict=True)
    return sum(abs(a - b) for a, b in pairs) / 2


def _between(points: Sequence[float], place: float) -> float:
    """The value at `place` of the line through `points`, which stand at 0, 1, 2, .."""
    low = min(int(place), len(points) - 2)
    return points[low] + (points[low + 1] - points[low]) * (place - low)
