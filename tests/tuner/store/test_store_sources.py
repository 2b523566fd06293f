"""Evidence of other kernel sources: what it says of a kernel holds as long as that kernel's own
sources are the same."""

from __future__ import annotations

import pytest

from humming.spec.config import BlasConfig
from humming.spec.sources import parts_of, text_of
from tests.tuner.store.store_samples import CONFIG, OTHER, PROBLEM, draft, identity
from tuner.store.store import Store

THEN = identity(source_hash="all:0 blas:1 cpu:2 pool:3")
MANY = BlasConfig("avx2", 64)
FIGURES = {"us": 5.0, "heuristic_us": 9.0}


def now(**parts: str):
    return identity(source_hash=text_of({**parts_of(THEN.source_hash), **parts}))


@pytest.mark.parametrize(
    ("changed", "held"),
    [
        ({}, {CONFIG, MANY, None}),
        ({"cpu": "9"}, {MANY, None}),
        ({"blas": "9", "all": "9"}, {CONFIG, None}),
        ({"cpu": "9", "blas": "9", "pool": "9", "all": "9"}, set()),
    ],
)
def test_trials_hold_by_their_own_kernels_sources(store: Store, changed, held) -> None:
    for config in (CONFIG, MANY):
        store.finish(None, draft(identity=THEN, config=config))
    store.finish(None, draft(identity=THEN, config=None, kind="torch"))
    assert {one.config for one in store.measurements(now(**changed))} == held
    other_driver = identity(source_hash=THEN.source_hash, driver="another")
    assert store.measurements(other_driver) == []


def test_a_trial_of_an_older_text_holds_where_all_files_are_as_they_were(store: Store) -> None:
    store.finish(None, draft(identity=identity(source_hash="5c" * 16)))
    assert len(store.measurements(now(all="5c" * 16))) == 1
    assert store.measurements(THEN) == []


def test_a_crash_is_forgiven_when_its_own_kernel_changed(store: Store) -> None:
    for config in (CONFIG, MANY):
        store.finish(None, draft(identity=THEN, config=config, outcome="crashed"))
    assert len(store.quarantined(THEN)) == len(store.quarantined(now(all="9"))) == 2
    assert len(store.quarantined(now(cpu="9"))) == len(store.quarantined(now(blas="9"))) == 1
    assert store.quarantined(now(pool="9")) == set()


def test_a_problem_stays_settled_until_something_that_can_serve_it_changes(store: Store) -> None:
    store.settle(THEN, PROBLEM, "exhausted", 40)
    assert store.settled(now(all="9", cpu_experts="9")).keys() == {PROBLEM.id}
    for unit in ("cpu", "blas", "pool"):
        assert store.settled(now(**{unit: "9"})) == {}
    assert store.lease(now(all="9"), [PROBLEM], 9.0) is None
    later = now(all="9")
    store.unsettle(later, PROBLEM)
    assert store.settled(later) == {} == store.settled(THEN)
    store.settle(later, PROBLEM, "rule", 2)
    assert store.settled(THEN)[PROBLEM.id].reason == "rule"


def test_a_winner_serves_on_and_one_of_these_very_sources_comes_first(store: Store) -> None:
    first = store.promote(THEN, PROBLEM, CONFIG, **FIGURES)
    after = now(blas="9", all="9")
    (held,) = store.winners(after)
    assert held.id == first.id and held.identity.source_hash == after.source_hash
    assert store.winners(now(cpu="9")) == []

    ours = store.promote(after, PROBLEM, MANY, **FIGURES)
    store.promote(THEN, PROBLEM, OTHER, **FIGURES)
    assert [one.id for one in store.winners(after)] == [ours.id]
    assert [one.config for one in store.winners(THEN)] == [OTHER]
    assert [one.config for one in store.winners(now(all="8"))] == [OTHER]  # the latest that holds
    assert len(store.winners()) == 2
