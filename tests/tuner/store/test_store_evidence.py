"""Trials: what goes in comes out, on both databases. Deaths of processes are
test_store_orphans.py.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_samples import CONFIG, GPU, HERE, OTHER, PROBLEM, draft, identity

from humming.errors import StoreError
from humming.spec.config import config_id
from tuner.store.open import open_store
from tuner.store.records import OUTCOMES
from tuner.store.store import Store

FINITE = st.floats(min_value=1e-6, max_value=1e12)
TEXT = st.text(st.characters(exclude_categories=[]), max_size=40)
SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


def test_a_finished_trial_is_read_back_as_it_was_written(store: Store) -> None:
    ticket = store.begin(HERE, PROBLEM, CONFIG)
    conditions = {"clock_khz": [2000, 2100.5], "throttled": False, "other": None}
    written = store.finish(ticket, draft(error=0.25, compile_s=1.5, conditions=conditions))
    assert store.measurements(HERE) == [written]
    assert written.id == ticket.id and written.samples == (812.25, 799.5, 820.001)
    assert (written.config, written.problem) == (CONFIG, PROBLEM)
    assert written.started_at == ticket.started_at <= written.finished_at
    assert written.device_uuid == "socket-0" and written.conditions == conditions
    assert store.suspects(HERE) == {} and store.quarantined(HERE) == set()


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_is_kept_and_found_by_name(store: Store, outcome: str) -> None:
    written = store.finish(None, draft(outcome=outcome, detail="why"))
    assert store.measurements(HERE, PROBLEM, outcome) == [written]  # type: ignore[arg-type]
    others = [name for name in OUTCOMES if name != outcome]
    assert all(store.measurements(HERE, outcome=name) == [] for name in others)


def test_evidence_belongs_to_its_identity_and_problem(store: Store) -> None:
    other_driver, gpu = identity(driver="6.1"), identity(GPU)
    for where in (HERE, other_driver, gpu):
        store.finish(None, draft(identity=where))
    store.finish(None, draft(problem=PROBLEM.at(16)))
    assert [m.problem.m for m in store.measurements(HERE)] == [1, 16]
    assert len(store.measurements(HERE, PROBLEM)) == 1
    assert len(store.measurements(gpu)) == len(store.measurements(other_driver)) == 1
    assert store.measurements(gpu)[0].device_uuid == "GPU-1234"
    twin = replace(CPU_OF_HERE, uuid="socket-1")
    assert len(store.measurements(identity(twin))) == 2


CPU_OF_HERE = HERE.device


def test_torch_is_measured_without_a_config(store: Store) -> None:
    written = store.finish(None, draft(config=None, kind="torch"))
    assert store.measurements(HERE) == [written] and written.config is None


def test_the_same_candidate_may_be_measured_again(store: Store) -> None:
    first, second = store.finish(None, draft()), store.finish(None, draft(us=800.0))
    assert first.id != second.id
    assert [m.us for m in store.measurements(HERE)] == [812.25, 800.0]


def test_finishing_a_ticket_twice_adds_one_trial(store: Store) -> None:
    ticket = store.begin(HERE, PROBLEM, CONFIG)
    assert store.finish(ticket, draft()).id == store.finish(ticket, draft()).id
    assert len(store.measurements(HERE)) == 1


def test_a_ticket_is_for_one_candidate(store: Store) -> None:
    ticket = store.begin(HERE, PROBLEM, CONFIG)
    with pytest.raises(ValueError, match="the ticket is for"):
        store.finish(ticket, draft(config=OTHER))
    assert store.measurements(HERE) == []


@pytest.mark.parametrize("error", [math.nan, math.inf, -math.inf])
def test_an_error_that_is_no_number_is_stored_as_unknown(store: Store, error: float) -> None:
    assert store.finish(None, draft(outcome="wrong_result", error=error)).error is None
    assert store.measurements(HERE)[0].error is None


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(us=FINITE, samples=st.lists(FINITE, max_size=5), detail=TEXT, note=TEXT)
def test_numbers_and_texts_survive_exactly(
    store: Store, us: float, samples: list[float], detail: str, note: str
) -> None:
    given_ = draft(us=us, samples=tuple(samples), detail=detail)
    written = store.finish(None, given_)
    read = next(m for m in store.measurements(HERE) if m.id == written.id)
    assert read == written and (read.us, read.samples) == (us, tuple(samples))
    if "\0" not in detail and not any("\ud800" <= c <= "\udfff" for c in detail):
        assert read.detail == detail


def test_a_long_detail_keeps_its_end(store: Store) -> None:
    written = store.finish(None, draft(outcome="compile_error", detail="x" * 10_000 + "the error"))
    assert len(written.detail) == 8000 and written.detail.endswith("the error")


@pytest.mark.parametrize(
    "changes",
    [
        {"us": math.nan},
        {"us": math.inf},
        {"us": 0.0},
        {"us": None},
        {"samples": (1.0, math.nan)},
        {"outcome": "wrong_result", "us": 3.0},
        {"outcome": "fine"},
        {"kind": "torch"},
        {"config": None},
        {"conditions": {"clock": math.nan}},
    ],
)
def test_a_draft_that_breaks_a_rule_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        draft(**changes)


def test_what_a_config_of_another_version_says_is_left_out(url: str) -> None:
    from sqlalchemy import update

    from tuner.store.schema import configs

    with open_store(url) as store:
        store.finish(None, draft())
        store.finish(None, draft(config=OTHER))
        foreign = {"family": "cpu", "knob_of_tomorrow": 1}
        row = configs.c.id == config_id(OTHER)
        store._connections.write(
            lambda c: c.execute(update(configs).where(row).values(config=foreign))
        )
        assert [m.config for m in store.measurements(HERE)] == [CONFIG]


def test_a_number_that_no_database_holds_is_one_sentence(store: Store) -> None:
    vast = replace(PROBLEM, n=10**30)
    with pytest.raises(StoreError) as caught:
        store.begin(HERE, vast, CONFIG)
    assert "\n" not in str(caught.value)
    assert store.measurements(HERE) == []
