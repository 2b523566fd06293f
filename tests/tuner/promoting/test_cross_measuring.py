"""What each winner serves after it was measured between anchors: disjoint, without a gap, and as a
table's entry."""

import itertools
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.jit.identity import here
from humming.spec.problem import Problem
from tests.tuner.searching.test_sampler import LEGAL
from tuner.promoting.bridging import Segment
from tuner.promoting.cross_measuring import _served
from tuner.store.entries import entries
from tuner.store.records import Winner

CONFIGS = list(LEGAL.values())
LAYER = Problem("int4g128", 512, 512, 0)


def winner(m, config, serves, bridge=None):
    return Winner(
        id=f"{m:032x}",
        identity=here(),
        problem=LAYER.at(m),
        config=config,
        us=1.0,
        heuristic_us=1.0,
        torch_us=None,
        limit_us=None,
        ratio_low=None,
        ratio_high=None,
        evidence={"serves": list(serves), **({"bridge": bridge} if bridge else {})},
        promoted_at=datetime(2026, 1, 1, tzinfo=timezone.utc),
    )


def test_anchors_of_one_segment_share_it_and_a_segment_without_one_gets_its_own():
    a, b, c = CONFIGS[:3]
    winners = {1: winner(1, a, (0, 2)), 16: winner(16, a, (4, 9)), 64: winner(64, c, (30, 257))}
    segments = [Segment(1, 20, 1, a), Segment(20, 40, 30, b), Segment(40, 65, 64, c)]
    found = {m: (s.config, s.low, s.high) for m, s in _served(segments, winners).items()}
    assert found == {1: (a, 0, 4), 16: (a, 4, 20), 30: (b, 20, 40), 64: (c, 40, 257)}


@given(st.lists(st.integers(1, 300), min_size=2, max_size=6, unique=True), st.data())
@settings(max_examples=40, deadline=None)
def test_shares_have_no_gap_and_become_intervals(ms, data):
    ms = sorted(ms)
    cuts = [data.draw(st.integers(a + 1, b)) for a, b in itertools.pairwise(ms)]
    segments = [
        Segment(low, high, m, CONFIGS[index])
        for index, (low, high, m) in enumerate(
            zip([ms[0], *cuts], [*cuts, ms[-1] + 1], ms, strict=True)
        )
    ]
    winners = {m: winner(m, CONFIGS[i], (m, m + 1)) for i, m in enumerate(ms)}
    shares = _served(segments, winners)
    bridged = [winner(m, s.config, (s.low, s.high), "x") for m, s in shares.items()]
    (entry,) = entries(bridged)
    assert entry.intervals[0].m_low == ms[0] and entry.intervals[-1].m_high == ms[-1] + 1
    for left, right in itertools.pairwise(entry.intervals):
        assert left.m_high == right.m_low


@pytest.mark.parametrize("bridges", [("x", "y"), ("x", None), (None, None)])
def test_winners_that_were_not_measured_together_meet_in_the_middle(bridges):
    both = [
        winner(4, CONFIGS[0], (1, 30), bridges[0]),
        winner(16, CONFIGS[1], (6, 60), bridges[1]),
    ]
    (entry,) = entries(both)
    assert [(i.m_low, i.m_high) for i in entry.intervals] == [(1, 8), (8, 60)]


def test_shares_of_two_processes_never_overlap():
    both = [winner(4, CONFIGS[0], (1, 30), "x"), winner(16, CONFIGS[1], (6, 60), "x")]
    (entry,) = entries(both)
    assert [(i.m_low, i.m_high) for i in entry.intervals] == [(1, 30)]
