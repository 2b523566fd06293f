"""Which served configs are measured again: pure functions over winners."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from humming.spec.identity import TIERS, Identity, Tier, seen_from, tier
from humming.spec.sources import units_of
from tuner.store.records import Winner

Served = tuple[Winner, Tier]
"""A winner, and how well its identity fits this machine."""


def served(winners: Iterable[Winner], identity: Identity) -> list[Served]:
    """For each problem the winner that serves on the machine `identity`: of the best tier, and of
    equals the one promoted last."""
    best: dict[str, Served] = {}
    for winner in winners:  # in order of promotion
        units = units_of(winner.config.family, winner.problem)
        fit = tier(seen_from(winner.identity, identity, units), identity)
        known = best.get(winner.problem.id)
        if fit != "none" and (known is None or TIERS.index(fit) <= TIERS.index(known[1])):
            best[winner.problem.id] = (winner, fit)
    return list(best.values())


def stratified(serving: Sequence[Served], sample: int, seed: int = 0) -> list[Served]:
    """`sample` of them, one in turn of each (tier, family, format, size of m); stale ones first, as
    they are the least sure."""
    draw = random.Random(seed)
    strata: dict[tuple[Any, ...], list[Served]] = defaultdict(list)
    for winner, fit in serving:
        size = winner.problem.m.bit_length()
        key = (-TIERS.index(fit), winner.config.family, winner.problem.format, size)
        strata[key].append((winner, fit))
    for key in sorted(strata):
        strata[key].sort(key=lambda item: item[0].id)
        draw.shuffle(strata[key])
    in_turn = itertools.zip_longest(*(strata[key] for key in sorted(strata)))
    return [item for turn in in_turn for item in turn if item is not None][:sample]
