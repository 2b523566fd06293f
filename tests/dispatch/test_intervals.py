"""Laws of serve_intervals: what each anchor serves. Table files are test_tables.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.dispatch.intervals import REACH, reach, serve_intervals
from humming.errors import TableError
from humming.spec.problem import M_END

ANCHORS = st.sets(
    st.one_of(st.integers(1, 300), st.integers(1, M_END - 1)), min_size=1, max_size=12
)


@given(ANCHORS)
def test_intervals_are_sorted_disjoint_and_hold_their_anchor(ms):
    served = serve_intervals((m, str(m)) for m in ms)
    assert [m for _, _, m, _ in served] == sorted(ms)
    end = 0
    for low, high, m, payload in served:
        assert end <= low <= m < high <= M_END
        assert payload == str(m)
        end = high


@given(ANCHORS)
def test_no_anchor_reaches_further_than_four_times(ms):
    for low, high, m, _ in serve_intervals((m, None) for m in ms):
        assert low * REACH >= m or (m == 1 and low == 0)
        assert high - 1 <= REACH * m


@given(ANCHORS)
def test_every_m_within_reach_of_an_anchor_goes_to_the_nearest_one(ms):
    served = serve_intervals((m, None) for m in ms)
    probes = {p for m in ms for p in (*reach(m), reach(m)[1] - 1, m, m + 1, m - 1)}
    for probe in (p for p in probes if 0 < p < M_END):
        near = [m for m in ms if reach(m)[0] <= probe < reach(m)[1]]
        owners = [m for low, high, m, _ in served if low <= probe < high]
        if not near:
            assert owners == []
            continue
        ratios = {m: max(m, probe) / min(m, probe) for m in near}
        assert len(owners) == 1
        assert ratios[owners[0]] == pytest.approx(min(ratios.values()))


def test_neighbours_meet_at_the_geometric_mean():
    assert [(low, high) for low, high, _, _ in serve_intervals([(16, "b"), (1, "a")])] == [
        (0, 4),
        (4, 65),
    ]


def test_without_anchors_nothing_is_served():
    assert serve_intervals([]) == []


@pytest.mark.parametrize("ms", [[0], [-1], [M_END], [4, 4]])
def test_an_impossible_anchor_is_refused(ms):
    with pytest.raises(TableError, match="1 <= m < 2"):
        serve_intervals((m, None) for m in ms)
