"""Laws of resolve and lookup: no gaps, legal, best evidence first.

Whether a table file is sound is test_tables.py.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.dispatch.dispatcher import Dispatch, lookup, resolve, why_unused
from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import Interval, TableEntry, TunedTable, serve_intervals
from humming.errors import LegalityError, TableError
from humming.spec.config import CpuConfig
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.identity import Identity
from humming.spec.legality import config_violations
from humming.spec.problem import M_END, Problem

DEVICE = Device("cpu", "Some CPU", "x86_64", 2**25, isa=CODE_PATH_FLAGS["avx2"], threads=4)
HERE = Identity(DEVICE, "", "g++", "g++ 12", "ab" * 16, "1.0", "policy-1")
PROBLEM = Problem("int4g128", n=64, k=256, m=0)
LEGAL = CpuConfig("stream", "avx2", 1, 32, 128, 2, 1024, 1)
OTHER = replace(LEGAL, prefetch_bytes=0)
ILLEGAL = replace(LEGAL, code_path="avx512")

MACHINES = st.sampled_from(
    [
        HERE,
        replace(HERE, product_version="0.9"),
        replace(HERE, compiler_version="g++ 13"),
        replace(HERE, source_hash="cd" * 16),
        replace(HERE, device=replace(DEVICE, threads=2)),
    ]
)
LAYERS = st.sampled_from([PROBLEM, replace(PROBLEM, bias=True), replace(PROBLEM, n=128)])


def entry(identity=HERE, problem=PROBLEM, anchors=((1, LEGAL),), tag=""):
    served = serve_intervals(anchors)
    intervals = (Interval(lo, hi, m, c, 1.0, 2.0, f"{tag}{m}") for lo, hi, m, c in served)
    return TableEntry(identity, problem, tuple(intervals))


def table(*entries):
    return TunedTable("t" * 32, entries)


ENTRIES = st.builds(
    entry,
    identity=MACHINES,
    problem=LAYERS,
    anchors=st.dictionaries(
        st.integers(1, 4000), st.sampled_from([LEGAL, OTHER, ILLEGAL]), max_size=5
    ).map(lambda anchors: tuple(anchors.items())),
)
TABLES = st.lists(ENTRIES, max_size=4).map(lambda entries: table(*entries))


@given(TABLES, st.booleans())
def test_dispatches_are_gap_free_legal_and_minimal(tuned, bias):
    problem = replace(PROBLEM, bias=bias)
    dispatches = resolve(problem, HERE, tuned)
    assert dispatches[0].m_low == 0
    assert dispatches[-1].m_high == M_END
    for left, right in itertools.pairwise(dispatches):
        assert left.m_high == right.m_low
        assert replace(left, m_low=0, m_high=0) != replace(right, m_low=0, m_high=0)
    for dispatch in dispatches:
        assert config_violations(dispatch.config, problem, DEVICE) == []
        assert (dispatch.source == "heuristic") == (dispatch.record is None)
        assert (dispatch.source == "heuristic") == (dispatch.tier is None)
        assert dispatch.tier != "none"


@given(TABLES, st.one_of(st.integers(0, 20000), st.integers(0, M_END - 1)))
def test_lookup_is_the_linear_search(tuned, m):
    dispatches = resolve(PROBLEM, HERE, tuned)
    (owner,) = [d for d in dispatches if d.m_low <= m < d.m_high]
    assert lookup(dispatches, m) is owner


@given(TABLES, st.integers(0, 20000))
def test_where_nothing_is_tuned_the_heuristic_serves(tuned, m):
    found = lookup(resolve(PROBLEM, HERE, tuned), m)
    if found.source == "heuristic":
        assert found.config == heuristic(PROBLEM.at(m), DEVICE)


@given(TABLES)
def test_an_exact_and_legal_anchor_serves_its_own_m(tuned):
    dispatches = resolve(PROBLEM, HERE, tuned)
    owned = {}
    for item in sorted(tuned.entries, key=lambda e: e.identity.id):
        if item.identity == HERE and item.problem == PROBLEM:
            for interval in item.intervals:
                if interval.config != ILLEGAL:
                    owned.setdefault(interval.m, []).append(interval)
    for m in owned:
        assert lookup(dispatches, m).source == "tuned"
        assert lookup(dispatches, m).tier == "exact"


def test_a_better_tier_is_preferred_and_worse_ones_fill_up():
    stale = replace(HERE, compiler_version="g++ 13")
    near = replace(HERE, product_version="0.9")
    dispatches = resolve(
        PROBLEM,
        HERE,
        table(
            entry(stale, anchors=((1, OTHER), (16, OTHER), (256, OTHER)), tag="stale"),
            entry(near, anchors=((1, OTHER), (16, OTHER)), tag="near"),
            entry(HERE, anchors=((1, LEGAL),), tag="exact"),
        ),
    )
    assert [(lookup(dispatches, m).tier, lookup(dispatches, m).record) for m in (1, 16, 256)] == [
        ("exact", "exact1"),
        ("compatible", "near16"),
        ("stale", "stale256"),
    ]


def test_an_illegal_config_gives_way_to_the_heuristic_and_never_to_an_unproven_neighbour():
    dispatches = resolve(PROBLEM, HERE, table(entry(anchors=((8, LEGAL), (16, ILLEGAL)))))
    assert lookup(dispatches, 11) == Dispatch(LEGAL, "tuned", "exact", "8", 2, 12)
    assert lookup(dispatches, 16).source == "heuristic"
    assert lookup(dispatches, 33).source == "heuristic"
    assert lookup(dispatches, 1).source == "heuristic"


def test_a_refused_config_is_passed_over():
    tuned = table(entry(anchors=((1, LEGAL), (16, OTHER))))
    left = resolve(PROBLEM, HERE, tuned, frozenset({LEGAL}))
    assert lookup(left, 1).source == "heuristic"
    assert lookup(left, 16).config == OTHER
    none = resolve(PROBLEM, HERE, tuned, frozenset({LEGAL, OTHER}))
    assert none == resolve(PROBLEM, HERE, None)


def test_a_record_without_bias_serves_a_layer_with_one():
    with_bias = replace(PROBLEM, bias=True)
    assert lookup(resolve(with_bias, HERE, table(entry())), 1).source == "nearest"
    own = table(entry(), entry(problem=with_bias, anchors=((1, OTHER),)))
    assert lookup(resolve(with_bias, HERE, own), 1) == Dispatch(OTHER, "tuned", "exact", "1", 0, 5)


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({"device": replace(DEVICE, threads=2)}, "device.threads 2, but here it is 4"),
        ({"source_hash": "cd" * 16}, "source_hash"),
    ],
)
def test_a_table_of_another_machine_is_not_used_and_says_why(change, phrase):
    foreign = table(entry(replace(HERE, **change)))
    assert {d.source for d in resolve(PROBLEM, HERE, foreign)} == {"heuristic"}
    assert phrase in why_unused(PROBLEM, HERE, foreign)


def test_a_table_without_the_layer_says_so():
    other = table(entry(problem=replace(PROBLEM, activation_dtype="fp32")))
    assert {d.source for d in resolve(PROBLEM, HERE, other)} == {"heuristic"}
    assert "no entry for this layer" in why_unused(PROBLEM, HERE, other)


def test_a_table_of_another_layout_is_refused():
    foreign = table(entry(problem=replace(PROBLEM, layout="cuda_w4a16")))
    with pytest.raises(TableError, match="layout 'cpu_n16k8', but got 'cuda_w4a16'"):
        resolve(PROBLEM, HERE, foreign)


def test_what_no_family_runs_is_refused():
    with pytest.raises(LegalityError, match="int4-fp8e4m3"):
        resolve(replace(PROBLEM, format="int4-fp8e4m3"), HERE, None)
    with pytest.raises(LegalityError, match="m=-1"):
        lookup(resolve(PROBLEM, HERE, None), -1)


def test_a_shipped_table_serves_between_the_users_and_the_heuristic():
    mine, theirs = table(entry(anchors=((16, LEGAL),))), table(entry(anchors=((1, OTHER),)))
    (default,) = {d.config for d in resolve(PROBLEM, HERE, None) if d.m_low <= 100 < d.m_high}
    found = resolve(PROBLEM, HERE, mine, shipped=theirs)
    assert [(lookup(found, m).config, lookup(found, m).source) for m in (1, 4, 100)] == [
        (OTHER, "shipped"),
        (LEGAL, "tuned"),
        (default, "heuristic"),
    ]


def test_a_shipped_table_of_other_kernels_layouts_or_failing_configs_is_passed_over():
    kernels = table(entry(replace(HERE, source_hash="cd" * 16)))
    layout = table(entry(problem=replace(PROBLEM, layout="cuda_n16k64")))
    for shipped in (kernels, layout):
        assert resolve(PROBLEM, HERE, None, shipped=shipped) == resolve(PROBLEM, HERE, None)
    refused = frozenset({LEGAL})
    without = resolve(PROBLEM, HERE, None, refused, table(entry()))
    assert without == resolve(PROBLEM, HERE, None)


@given(TABLES, TABLES)
def test_what_the_user_tuned_never_depends_on_what_is_shipped(mine, theirs):
    def own(dispatches):
        return [d for d in dispatches if d.source in ("tuned", "nearest")]

    with_shipped = resolve(PROBLEM, HERE, mine, shipped=theirs)
    assert own(with_shipped) == own(resolve(PROBLEM, HERE, mine))
    assert [d.m_low for d in with_shipped] == [0, *(d.m_high for d in with_shipped[:-1])]
    assert with_shipped[-1].m_high == M_END
