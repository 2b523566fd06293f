"""What two benchmarks of trust say of times: ties, regret, and how it adds up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.referee import Referee
from benchmarks.resumed import FASTEST, _summary, contenders
from humming.spec.config import BlasConfig, CpuConfig

ONE = BlasConfig("generic", 64)
OTHER = CpuConfig("stream", "generic", 1, 16, 128, 1, 0, 1)


@pytest.mark.parametrize(("gain", "tie"), [(0.0, True), (0.015, True), (0.05, False)])
def test_a_tie_is_what_promotion_would_not_prove(gain, tie):
    wave = [1.0 + 0.002 * (r % 3) for r in range(24)]
    rounds = (tuple(100.0 * w for w in wave), tuple(100.0 * (1.0 - gain) * w for w in wave))
    judged = Referee((ONE, OTHER), rounds, True)
    seen = judged.against(OTHER, ONE)
    assert seen["tie"] is tie and seen["rounds"] == 24
    assert seen["ratio"] == pytest.approx(1.0 - gain)
    assert judged.against(ONE, OTHER)["tie"] is tie
    assert gain == 0.0 or judged.best == OTHER


def test_regret_adds_up_over_layers_and_by_traffic():
    def row(m: int, count: int, first: float, best: float, weight: float) -> dict[str, Any]:
        times = {"first_us": first, "best_us": best, "regret": first / best - 1.0}
        tie = {"best_of_first": {"tie": first < 10.5}}
        return {"m": m, "count": count, "weight": weight, **times, **tie}

    rows = [row(1, 3, 10.0, 10.0, 3.0), row(1, 1, 11.0, 10.0, 1.0), row(8, 1, 5.0, 5.0, 1.0)]
    found = _summary(rows, [SimpleNamespace()] * 4)  # type: ignore[list-item]
    assert found["worst_regret"] == pytest.approx(0.1) and found["over_3_percent"] == 1
    assert found["over_3_percent_proven"] == 1
    assert found["weighted_regret"] == 0.02 and (found["compared"], found["problems"]) == (3, 4)
    assert found["regret_of_all_layers_by_m"] == {1: 0.025, 8: 0.0}


def test_who_meets_the_first_winner_was_no_slower():
    others = [replace(OTHER, prefetch_bytes=64 * i) for i in range(1, 8)]
    timed = [(10.0, ONE), (11.0, OTHER), (20.0, ONE)]
    timed += [(9.0 + 0.3 * i, config) for i, config in enumerate(others)]
    assert contenders(ONE, ONE, timed) == [ONE, ONE, *others[:FASTEST]]
    assert contenders(ONE, OTHER, timed[:4]) == [ONE, OTHER, others[0]]
    assert contenders(ONE, ONE, [(10.0, ONE), (10.2, OTHER)]) == [ONE, ONE]
