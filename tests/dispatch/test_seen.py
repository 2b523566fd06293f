"""A record holds as long as its own kernel's sources are the same, whatever became of others: laws
of the text that names sources, and what a table serves after some of them changed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.dispatch.dispatcher import resolve, why_unused
from humming.dispatch.heuristics import heuristic
from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.dispatch.seen import as_seen
from humming.spec.config import BlasConfig
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.identity import Identity, differences, seen_from, tier
from humming.spec.layouts import CUDA_A8_LAYOUT, CUDA_LAYOUT
from humming.spec.problem import M_END, Problem
from humming.spec.sources import count_same, parts_of, same_sources, text_of, units_of

UNITS = ("all", "blas", "cpu", "pool")
PARTS = st.dictionaries(st.sampled_from(UNITS), st.sampled_from(["a0", "b1"]), min_size=2)
TEXTS = PARTS.map(text_of) | st.sampled_from(["a0", "b1"])
SOME = st.sets(st.sampled_from(UNITS), min_size=1)

DEVICE = Device("cpu", "Some CPU", "x86_64", 2**25, isa=CODE_PATH_FLAGS["avx2"], threads=4)
THEN = Identity(DEVICE, "", "g++", "g++ 12", "all:0 blas:1 cpu:2 cpu_experts:3 pool:4", "1", "p")
PROBLEM = Problem("int4g128", n=64, k=256, m=0)
FEW, MANY = heuristic(PROBLEM.at(1), DEVICE), BlasConfig("avx2", 64)
BYTES = Problem("int8-int8", 64, 256, 1, layout=CUDA_A8_LAYOUT)
EXPERTS = replace(PROBLEM, layout=CUDA_LAYOUT, op="moe", experts=8, top_k=2, routing="uniform")


def now(**parts: str) -> Identity:
    return replace(THEN, source_hash=text_of({**parts_of(THEN.source_hash), **parts}))


def entry(identity: Identity = THEN, tag: str = "") -> TableEntry:
    """The CPU family up to m = 8, the BLAS from there on."""
    served = (Interval(0, 8, 1, FEW, 1.0, 2.0, f"{tag}few"),)
    served += (Interval(8, M_END, 64, MANY, 1.0, 2.0, f"{tag}many"),)
    return TableEntry(identity, PROBLEM, served)


def serving(here: Identity, *entries: TableEntry) -> list[tuple[str | None, str | None]]:
    found = resolve(PROBLEM, here, TunedTable("t" * 32, entries))
    return [(one.record, one.tier) for one in found if one.source == "tuned"]


@given(parts=PARTS)
def test_a_text_says_its_parts_whatever_their_order(parts):
    assert parts_of(text_of(parts)) == parts
    assert text_of(dict(reversed(parts.items()))) == text_of(parts)


@given(one=TEXTS, other=TEXTS, few=SOME, more=SOME)
def test_sources_are_the_same_both_ways_and_of_fewer_units_where_of_more(one, other, few, more):
    assert same_sources(one, one, more)
    assert same_sources(one, other, few) == same_sources(other, one, few)
    if same_sources(one, other, few | more):
        assert same_sources(one, other, few)
        assert count_same(one, other) > 0


@given(one=PARTS, other=PARTS, units=SOME)
def test_sources_differ_where_any_unit_does(one, other, units):
    alike = all(unit in one and one[unit] == other.get(unit) for unit in units)
    assert same_sources(text_of(one), text_of(other), units) == (alike or one == other)


def test_an_older_text_holds_where_all_files_are_as_they_were():
    older = replace(THEN, source_hash="5c" * 16)
    assert (
        tier(seen_from(older, now(all="5c" * 16), ["cpu", "pool"]), now(all="5c" * 16)) == "exact"
    )
    assert tier(seen_from(older, THEN, ["cpu", "pool"]), THEN) == "none"


@pytest.mark.parametrize(
    ("family", "problem", "units"),
    [
        ("cpu", PROBLEM, {"cpu", "pool"}),
        ("blas", PROBLEM, {"blas", "pool"}),
        ("mma", replace(PROBLEM, layout=CUDA_LAYOUT), {"mma"}),
        ("mma", BYTES, {"mma_bytes", "quantize_input"}),
        ("wgmma", EXPERTS, {"wgmma_experts", "experts"}),
    ],
)
def test_the_units_of_a_call(family, problem, units):
    assert set(units_of(family, problem)) == units


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, ["few", "many"]),
        ({"cpu": "9"}, ["many"]),
        ({"blas": "9"}, ["few"]),
        ({"cpu_experts": "9", "all": "9"}, ["few", "many"]),
        ({"pool": "9"}, []),
    ],
)
def test_an_edit_ends_the_records_of_its_own_kernels_alone(changed, held):
    here = now(**changed)
    assert serving(here, entry()) == [(record, "exact") for record in held]
    stale = replace(here, driver="another")
    assert serving(stale, entry()) == [(record, "stale") for record in held]


def test_records_of_these_very_sources_come_before_those_of_others():
    here = now(blas="9")
    older, ours = entry(tag="older "), entry(here, tag="ours ")
    nearer = entry(now(blas="8", all="8"), tag="nearer ")
    for entries in ((older, ours), (ours, older)):
        assert serving(here, *entries) == [("ours few", "exact"), ("ours many", "exact")]
    of_two = as_seen(TunedTable("t" * 32, (older, nearer)), now(blas="8", all="7"))
    assert [one.record for one in of_two.entries[0].intervals] == ["nearer few", "nearer many"]


def test_what_does_not_hold_stays_as_it_was_and_says_why():
    here = now(blas="9", all="9")
    held, other = as_seen(TunedTable("t" * 32, (entry(),)), here).entries
    assert held.identity == here and [one.record for one in held.intervals] == ["few"]
    assert other.identity == THEN and [one.record for one in other.intervals] == ["many"]
    assert differences(THEN, here) == {"source_hash": ("blas:1", "blas:9")}
    gone = TunedTable("t" * 32, (replace(entry(), intervals=entry().intervals[1:]),))
    said = "the table was tuned with source_hash 'blas:1', but here it is 'blas:9'"
    assert why_unused(PROBLEM, here, gone) == said


def test_an_entry_that_serves_nothing_stays():
    empty = replace(entry(), intervals=())
    assert as_seen(TunedTable("t" * 32, (empty,)), now(pool="9")).entries == (empty,)
