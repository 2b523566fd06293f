"""Optuna's TPE proposes each legal candidate once, seeds first, and learns from evidence."""

import pytest

from benchmarks.tpe import Sampler
from humming.spec.config import CpuConfig, config_id
from tests.tuner.searching.test_sampler import LEGAL, PARAMETERS


def drain(sampler):
    proposed = []
    while (config := sampler.ask()) is not None:
        proposed.append(config_id(config))
        sampler.tell(config, float(config.block_n + config.unroll))
    return proposed


def test_every_legal_candidate_is_proposed_once_and_nothing_else():
    proposed = drain(Sampler(LEGAL, PARAMETERS, []))
    assert sorted(proposed) == sorted(LEGAL)


def test_seeds_come_first_in_order_and_illegal_seeds_are_left_out():
    seeds = list(LEGAL.values())[5:8]
    illegal = CpuConfig("stream", "avx2", 4, 64, 128, 2, 0, 1)
    assert config_id(illegal) not in LEGAL
    proposed = drain(Sampler(LEGAL, PARAMETERS, [illegal, *seeds]))
    assert proposed[:3] == [config_id(seed) for seed in seeds]


def test_evidence_is_not_proposed_again():
    known = list(LEGAL.values())[:10]
    sampler = Sampler(LEGAL, PARAMETERS, known)
    for index, config in enumerate(known):
        sampler.know(config, None if index % 2 else 12.0)
    proposed = drain(sampler)
    assert not set(proposed) & {config_id(config) for config in known}
    assert len(proposed) == len(LEGAL) - 10
    assert sampler.exhausted


def test_a_heuristic_off_the_grid_may_be_known_and_told():
    off = CpuConfig("stream", "avx2", 3, 16, 128, 2, 0, 1)
    legal = {**LEGAL, config_id(off): off}
    sampler = Sampler(legal, PARAMETERS, [off])
    assert sampler.ask() == off
    sampler.tell(off, 5.0)
    assert len(drain(sampler)) == len(LEGAL)


def test_it_finds_the_fast_corner_early():
    best = min(
        LEGAL.values(), key=lambda c: (c.block_n + 8 * c.unroll, c.block_m, c.prefetch_bytes)
    )
    sampler = Sampler(LEGAL, PARAMETERS, [])
    target = best.block_n + 8 * best.unroll
    times = []
    while target not in times:
        config = sampler.ask()
        times.append(config.block_n + 8 * config.unroll)
        sampler.tell(config, float(times[-1]))
    assert len(times) < len(LEGAL) // 2


@pytest.mark.parametrize("failure", [None])
def test_failed_candidates_are_not_proposed_again(failure):
    sampler = Sampler(LEGAL, PARAMETERS, [])
    seen = set()
    while (config := sampler.ask()) is not None:
        assert config_id(config) not in seen
        seen.add(config_id(config))
        sampler.tell(config, failure)
    assert len(seen) == len(LEGAL)
