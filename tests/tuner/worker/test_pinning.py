"""To which CPUs the worker of a CPU is pinned."""

import os

from hypothesis import given
from hypothesis import strategies as st

from tuner.worker.pinning import choose, pin

MACHINES = st.integers(1, 12).flatmap(
    lambda cpus: st.tuples(
        st.lists(st.integers(0, 5), min_size=cpus, max_size=cpus),
        st.lists(st.integers(0, 9), min_size=cpus, max_size=cpus),
    )
)


@given(MACHINES, st.integers(1, 12))
def test_cores_come_before_second_cpus_and_the_least_busy_first(machine, threads):
    cores, ticks = machine
    core_of = {cpu: f"0:{core}" for cpu, core in enumerate(cores)}
    busy = dict(enumerate(ticks))
    chosen = choose(threads, core_of, busy)
    assert chosen == sorted(set(chosen)) and len(chosen) == min(threads, len(cores))
    assert len({cores[cpu] for cpu in chosen}) == min(threads, len(set(cores)))
    if threads == 1:
        load = {
            core: sum(t for c, t in zip(cores, ticks, strict=True) if c == core) for core in cores
        }
        assert load[cores[chosen[0]]] == min(load.values())


def test_a_process_is_pinned_to_as_many_cpus_as_it_has_threads():
    before = os.sched_getaffinity(0)
    try:
        assert pin(len(before)) == [] and os.sched_getaffinity(0) == before
        if len(before) > 1:
            chosen = pin(1)
            assert os.sched_getaffinity(0) == set(chosen) <= before and len(chosen) == 1
    finally:
        os.sched_setaffinity(0, before)
