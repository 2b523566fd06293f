"""Durations parse, deadlines pass, shares add up."""

import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from humming.errors import UsageError
from tuner.planning.budget import Budget, parse_duration, process_age_s
from tuner.promoting import finals
from tuner.worker.isolation import WorkerLostError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("60s", 60), ("10m", 600), ("1.5h", 5400)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1s", "ten", "5d", "1e3", "nan", "60 s x"])
def test_other_durations_are_refused_with_an_example(text):
    with pytest.raises(UsageError, match="write 60s or 10m"):
        parse_duration(text)


def test_no_budget_never_ends():
    assert Budget(None).left_s() == float("inf")
    assert not Budget(None).share(1, 2).over


def test_the_grace_ends_too():
    assert Budget(None).left_with_s(1.0) == float("inf")
    assert Budget(10.0, spent_s=10.5).left_with_s(1.0) == pytest.approx(0.5, abs=0.1)
    assert Budget(10.0, spent_s=12.0).left_with_s(1.0) == 0.0


def test_time_spent_before_counts():
    assert Budget(10.0, spent_s=11.0).over
    assert Budget(10.0, spent_s=1.0).left_s() <= 9.0


@given(st.floats(1, 1e5), st.integers(1, 50))
def test_equal_shares_add_up_to_what_is_left(seconds, parts):
    budget = Budget(seconds)
    shares = sum(budget.share(1.0, parts).left_s() for _ in range(parts))
    assert shares == pytest.approx(seconds, rel=0.02, abs=0.05)


def test_the_process_has_an_age():
    first = process_age_s()
    time.sleep(0.03)
    assert 0.0 < first <= process_age_s()


def test_finals_that_time_ended_say_so():
    lost = WorkerLostError("timeout", "no answer within 0 s")
    over, going = (SimpleNamespace(deadline=Budget(seconds)) for seconds in (1e-9, None))
    assert finals._why(over, lost) == "the budget ended before they were decided"
    assert finals._why(going, lost) == str(lost)
    crashed = WorkerLostError("crashed", "the worker died by SIGSEGV")
    assert finals._why(over, crashed) == str(crashed)
