"""A budget goes where traffic and headroom are, and no problem is left without."""

from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from humming.spec.problem import Problem
from tuner.planning.weights import FLOOR, weights


def task(n, m, count):
    return SimpleNamespace(
        problem=Problem("int4g128", n, 1024, m), group=SimpleNamespace(count=count)
    )


def served(of, us, limit_us):
    return SimpleNamespace(problem=of.problem, us=us, limit_us=limit_us)


def test_traffic_and_headroom_count():
    large, small, many = task(4096, 1, 1), task(1024, 1, 1), task(1040, 1, 36)
    of = weights([large, small, many], [])
    assert of[many.problem.id] > of[large.problem.id] > of[small.problem.id]
    done, slow = task(4096, 1, 1), task(4080, 1, 1)
    of = weights([done, slow], [served(done, 10.0, 9.9), served(slow, 10.0, 5.0)])
    assert of[slow.problem.id] > 1 > of[done.problem.id] >= FLOOR


@given(st.lists(st.tuples(st.integers(1, 9999), st.integers(1, 512)), min_size=1, max_size=9))
@settings(deadline=None)
def test_they_are_one_on_average_and_none_is_under_the_floor(shapes):
    tasks = [task(n, m, 1) for n, m in dict.fromkeys(shapes)]
    of = weights(tasks, [])
    assert abs(sum(of.values()) - len(of)) < 1e-6 * len(of)
    assert min(of.values()) >= FLOOR
    assert set(weights(tasks, [served(t, 1.0, 1.0) for t in tasks]).values()) == {1.0}
