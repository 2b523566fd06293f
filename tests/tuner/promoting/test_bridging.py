"""Between anchors what serves loses at most 3 % to anything known, on recorded sweeps at every m;
segments are sorted, disjoint and without a gap, whatever was measured."""

import itertools
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replay import read_sweep
from humming.spec.config import config_id
from tests.tuner.searching.test_sampler import LEGAL
from tuner.promoting.bridging import REGRET, bridge, regret_at
from tuner.searching.stopping import stop
from tuner.searching.surrogate import Surrogate

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
CONFIGS = list(LEGAL.values())

MISSED = 0.01
"""What a search that stops by rule may miss on top."""


class Recorded:
    """Measures on a sweep. A search is exhaustive, or the surrogate's as it stops by rule."""

    def __init__(self, sweep, exhaustive: bool):
        self.sweep, self.exhaustive = sweep, exhaustive

    def times(self, m, configs):
        at = self.sweep.us[m]
        return {c: at[config_id(c)] for c in configs if config_id(c) in at}

    def tuned(self, m, known):
        at = self.sweep.us[m]
        if self.exhaustive:
            return self.sweep.configs[min(at, key=lambda key: at[key])]
        searcher = Surrogate({key: self.sweep.configs[key] for key in at}, known)
        seen, since_news = {}, 0
        while (config := searcher.ask()) is not None:
            us = at[config_id(config)]
            searcher.tell(config, us)
            since_news = 0 if us < 0.99 * min(seen.values(), default=inf) else since_news + 1
            seen[config] = us
            if stop(len(seen), since_news, searcher.expected_gain()):
                break
        return min(seen, key=lambda config: seen[config])


SWEEPS = [
    ("sweep_cpu_int4g128_1024.json", (1, 16, 256)),
    ("sweep_h200_int4g128_4096.json", (1, 16, 192)),
    ("sweep_h200_int4g128_4096.json", (1, 2, 4, 8, 16, 32, 64, 128, 192)),
]


@pytest.mark.parametrize("exhaustive", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("name", "anchors"), SWEEPS)
def test_regret_on_a_recorded_sweep_is_small_at_every_m(name, anchors, exhaustive):
    sweep = read_sweep(RESULTS / name)
    oracle = Recorded(sweep, exhaustive)
    winners = {m: oracle.tuned(m, []) for m in anchors}
    segments = bridge(winners, oracle, only=sorted(sweep.us))
    times = {m: {sweep.configs[key]: us for key, us in at.items()} for m, at in sweep.us.items()}
    found = regret_at(segments, times)
    assert set(found) == set(sweep.us)
    most = REGRET if exhaustive else REGRET + MISSED
    over = {m: round(regret, 3) for m, regret in found.items() if regret > most}
    assert not over, over


@given(
    st.dictionaries(st.integers(1, 5000), st.sampled_from(CONFIGS[:6]), min_size=1, max_size=6),
    st.integers(0, 9),
    st.integers(0, 40),
)
@settings(max_examples=60, deadline=None)
def test_segments_have_no_gap_whatever_was_measured(winners, seed, races):
    class Oracle:
        left = races

        def times(self, m, configs):
            self.left -= 1
            if self.left < 0:
                return None
            return {c: 1.0 + (hash((m // 7, i, seed)) % 50) / 100 for i, c in enumerate(configs)}

        def tuned(self, m, known):
            return CONFIGS[(m + seed) % 8] if self.left > 0 else None

    segments = bridge(winners, Oracle())
    assert segments[0].low == min(winners) and segments[-1].high == max(winners) + 1
    for left, right in itertools.pairwise(segments):
        assert left.high == right.low and left.config != right.config
    assert all(s.low <= s.at < s.high for s in segments)


def test_equals_merge():
    class Even:
        def times(self, m, configs):
            return dict.fromkeys(configs, 1.0)

        def tuned(self, m, known):
            return CONFIGS[3]

    segments = bridge({1: CONFIGS[0], 16: CONFIGS[0], 256: CONFIGS[0]}, Even())
    assert [(s.low, s.high, s.config) for s in segments] == [(1, 257, CONFIGS[0])]
