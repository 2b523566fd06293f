"""How tokens fall on experts, as a name that a problem has: "uniform", "zipf1.2", or what was
recorded. No tensors here; drawing ids is moe/routing.py.

What a kernel sees of a routing is how uneven the experts' loads are, not which expert is the
busiest. So a routing is known by its shares: what part of all tokens the busiest 1/512, 1/256, ..,
1/2, .., 7/8, all of the experts get. A recorded one is named by those, "shares" and sixteen numbers
of two hex digits.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

from humming.errors import LegalityError

UNIFORM = "uniform"
NO_LOAD = 1e-12
"""Of an expert that gets nothing while others have room."""
CUTS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 320, 384, 448, 512)
"""Where shares are told: at so many of 512 experts, the busiest first."""
_FULL = 255
_ZIPF = re.compile(r"zipf(\d+(?:\.\d+)?)")
_SHARES = re.compile(rf"shares((?:[0-9a-f]{{2}}){{{len(CUTS)}}})")


def check_routing(routing: str) -> None:
    """Raises LegalityError where `routing` is no routing's name."""
    shares = _SHARES.fullmatch(routing)
    if routing == UNIFORM or _ZIPF.fullmatch(routing):
        return
    if shares:
        numbers = [int(shares[1][i : i + 2], 16) for i in range(0, 2 * len(CUTS), 2)]
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
        told = [int(shares[1][i : i + 2], 16) / _FULL for i in range(0, 2 * len(CUTS), 2)]
        points = [(0.0, 0.0), *zip((cut / CUTS[-1] for cut in CUTS), told, strict=True)]
        curve = [_on_line(points, rank / experts) for rank in range(experts + 1)]
        loads = sorted((b - a for a, b in pairwise(curve)), reverse=True)
    else:
        loads = [1.0] * experts
    total = sum(loads)
    return tuple(load / total for load in loads)


@lru_cache(maxsize=256)
def picked_of(routing: str, experts: int, top_k: int) -> tuple[float, ...]:
    """The chance that a token picks each of `experts`, the busiest first, where it draws `top_k`
    different ones by their loads; top_k in all.

    Source: B. Rosen, Asymptotic theory for successive sampling (1972): drawing without putting back
    is as if each were met at a rate of its load until so many are.
    """
    loads = tuple(max(load, NO_LOAD) for load in loads_of(routing, experts))
    wanted = min(top_k, experts)
    if wanted == experts:
        return (1.0,) * experts
    low, high = 0.0, 1.0
    while _met(loads, high) < wanted:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _met(loads, middle) < wanted else (low, middle)
    return tuple(-math.expm1(-high * load) for load in loads)


def _met(loads: tuple[float, ...], time: float) -> float:
    return sum(-math.expm1(-time * load) for load in loads)


def routing_of(counts: Iterable[float]) -> str:
    """The name of the routing that gave experts so many tokens; "uniform" where all are alike, or
    nothing came."""
    ordered = sorted((float(count) for count in counts), reverse=True)
    total = sum(ordered)
    if not ordered or total <= 0:
        return UNIFORM
    points = [(0.0, 0.0)]
    for rank, count in enumerate(ordered):
        points.append(((rank + 1) / len(ordered), points[-1][1] + count / total))
    numbers = [round(_on_line(points, cut / CUTS[-1]) * _FULL) for cut in CUTS]
    even = [round(_FULL * cut / CUTS[-1]) for cut in CUTS]
    if numbers == even:
        return UNIFORM
    return "shares" + "".join(f"{number:02x}" for number in numbers)


def distance(one: str, other: str, experts: int) -> float:
    """How far two routings are apart: the part of all tokens that would have to change experts, the
    busiest compared with the busiest; 0 .. 1."""
    pairs = zip(loads_of(one, experts), loads_of(other, experts), strict=True)
    return sum(abs(a - b) for a, b in pairs) / 2


def _on_line(points: Sequence[tuple[float, float]], place: float) -> float:
    """The height at `place` of the line through `points`, which are sorted."""
    at = min(max(bisect_left(points, (place,)), 1), len(points) - 1)
    (low, start), (high, end) = points[at - 1], points[at]
    return start + (end - start) * (place - low) / (high - low)
