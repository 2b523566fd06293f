"""What problems took is read off the evidence, and predicts their neighbours."""

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from humming.spec.problem import Problem
from tuner.planning.durations import durations, predicted_s

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
FIRST, SECOND, OTHER = (Problem("int4g128", n, 1024, 1) for n in (1024, 2048, 4096))


def row(problem, start_s, end_s, compile_s=0.0, pid=1):
    return SimpleNamespace(
        problem=problem,
        problem_id=problem.id,
        host="here",
        pid=pid,
        compile_s=compile_s,
        started_at=START + timedelta(seconds=start_s),
        finished_at=START + timedelta(seconds=end_s),
    )


def settled(at_s, measured=1):
    return SimpleNamespace(settled_at=START + timedelta(seconds=at_s), measured=measured)


def test_a_problem_takes_from_the_end_of_the_one_before_to_its_own():
    rows = [row(FIRST, 3, 4, compile_s=2), row(SECOND, 15, 20), row(OTHER, 100, 105, pid=2)]
    ends = {FIRST.id: settled(10), SECOND.id: settled(22), OTHER.id: settled(110)}
    assert durations(rows, ends) == {FIRST: 9.0, SECOND: 12.0, OTHER: 10.0}


def test_a_problem_that_was_searched_twice_counts_no_others_time():
    rows = [row(FIRST, 1, 4), row(SECOND, 6, 9), row(FIRST, 11, 12)]
    ends = {FIRST.id: settled(13), SECOND.id: settled(10)}
    assert durations(rows, ends) == {SECOND: 9.0, FIRST: 3.0}


def test_evidence_of_an_earlier_run_does_not_count_twice():
    rows = [row(FIRST, 0, 1, pid=1), row(FIRST, 1000, 1001, pid=2)]
    assert durations(rows, {FIRST.id: settled(1005)}) == {FIRST: 5.0}


def test_what_was_settled_without_trials_tells_nothing():
    assert durations([row(FIRST, 0, 1)], {FIRST.id: settled(5, measured=0)}) == {}


def test_trials_after_a_problem_was_settled_do_not_count():
    rows = [row(FIRST, 0, 1), row(FIRST, 50, 51), row(FIRST, 900, 901, pid=2)]
    assert durations(rows, {FIRST.id: settled(5)}) == {FIRST: 5.0}


def test_neighbours_tell_and_nothing_tells_nothing():
    known = {FIRST: 10.0, SECOND: 20.0, OTHER: 30.0, Problem("int4g128", 9**6, 9**6, 512): 900.0}
    assert predicted_s(Problem("int4g128", 2000, 1024, 2), known) == pytest.approx(20.0)
    assert predicted_s(FIRST, {}) is None
