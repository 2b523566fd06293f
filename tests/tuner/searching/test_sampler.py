"""The sampler's Optuna study proposes each legal candidate once, seeds first, and holds what was
measured. How well it searches is test_surrogate.py."""

import itertools

from optuna.trial import TrialState

from humming.spec.config import CpuConfig, SkinnyConfig, config_id
from tuner.searching.sampler import Sampler

PARAMETERS = {
    "mainloop": ("stream",),
    "code_path": ("generic", "avx2"),
    "block_m": (1, 2, 4),
    "block_n": (16, 32, 64),
    "block_k": (128,),
    "unroll": (1, 2),
    "prefetch_bytes": (0, 1024),
    "split_k": (1,),
}
LEGAL = {
    config_id(config): config
    for config in (CpuConfig(*values) for values in itertools.product(*PARAMETERS.values()))
    if config.block_m * config.block_n // 16 * config.unroll <= 6
}


def drain(sampler):
    proposed = []
    while (config := sampler.ask()) is not None:
        proposed.append(config_id(config))
        sampler.tell(config, float(config.block_n + config.unroll))
    return proposed


def test_every_legal_candidate_is_proposed_once_and_nothing_else():
    sampler = Sampler(LEGAL)
    assert sorted(drain(sampler)) == sorted(LEGAL)
    assert sampler.exhausted and sampler.ask() is None and sampler.expected_gain() == 0.0


def test_seeds_come_first_in_order_and_illegal_seeds_are_left_out():
    seeds = list(LEGAL.values())[5:8]
    illegal = CpuConfig("stream", "avx2", 4, 64, 128, 2, 0, 1)
    assert config_id(illegal) not in LEGAL
    proposed = drain(Sampler(LEGAL, [illegal, *seeds]))
    assert proposed[:3] == [config_id(seed) for seed in seeds]


def test_evidence_is_not_proposed_again():
    known = list(LEGAL.values())[:10]
    sampler = Sampler(LEGAL, known)
    for index, config in enumerate(known):
        sampler.know(config, None if index % 2 else 12.0)
    proposed = drain(sampler)
    assert not set(proposed) & {config_id(config) for config in known}
    assert len(proposed) == len(LEGAL) - 10


def test_several_candidates_are_asked_before_one_is_told():
    sampler = Sampler(LEGAL)
    asked = [sampler.ask() for _ in range(12)]
    assert len({config_id(config) for config in asked}) == 12
    for config in reversed(asked):
        sampler.tell(config, 5.0)
    assert len(drain(sampler)) == len(LEGAL) - 12


def test_the_study_holds_times_failures_and_evidence():
    sampler = Sampler(LEGAL)
    first, second = list(LEGAL.values())[:2]
    sampler.know(first, 30.0)
    sampler.know(second, None)
    sampler.know(CpuConfig("stream", "avx2", 3, 16, 128, 2, 0, 1), 5.0)  # of no legal candidate
    better, failed = sampler.ask(), sampler.ask()
    sampler.tell(better, 20.0)
    sampler.tell(failed, None)
    states = [trial.state for trial in sampler.study.trials]
    assert states == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert sampler.study.best_value == 20.0
    assert sampler.study.best_params["cpu.block_m"] == better.block_m


def test_families_have_knobs_of_their_own():
    other = SkinnyConfig(1, 1, 4, 1, 2, 1, 1, 2, 1, 0, 0)
    sampler = Sampler({**LEGAL, config_id(other): other}, [other])
    assert sampler.ask() == other
    sampler.tell(other, 7.0)
    assert sampler.study.best_params["family"] == "skinny"
    assert len(drain(sampler)) == len(LEGAL)
