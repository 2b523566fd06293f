"""CUDA kernels under test without a GPU: devices, configs, a pairwise cover of what may meet."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import combinations

from humming.errors import CompileError
from humming.jit import nvrtc
from humming.jit.source import render
from humming.spec.config import DequantizeConfig, KernelConfig, SkinnyConfig
from humming.spec.device import Device
from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.legality import config_violations
from humming.spec.problem import Problem
from tests.gpus import CAPABILITIES, gpu

PLAIN = SkinnyConfig(
    block_m=8,
    tiles_n=4,
    warps=4,
    split_k=1,
    num_stages=0,
    stage_tiles=1,
    x_stages=2,
    blocks_per_sm=1,
    dependent_launch=0,
    warpgroup=0,
    exact_codes=0,
)
"""A config that every GPU runs."""

CHOICES: dict[str, tuple[int, ...]] = {
    "block_m": (1, 8, 16, 32),
    "tiles_n": (1, 3, 4),
    "warps": (4, 8),
    "split_k": (1, 2, 4),
    "num_stages": (0, 2, 4),
    "stage_tiles": (1, 2),
    "x_stages": (1, 2, 3),
    "dependent_launch": (0, 1),
    "warpgroup": (0, 1),
    "exact_codes": (0, 1),
}

Case = tuple[Device, str, KernelConfig]


def problem(
    activation: str,
    n: int = 4096,
    k: int = 4096,
    m: int = 1,
    format: str = "int4g128",
    act_order: bool = False,
) -> Problem:
    return Problem(format, n, k, m, activation, activation, layout=CUDA_LAYOUT, act_order=act_order)


def cover(everywhere: bool) -> list[Case]:
    """Legal cases in which every legal pair of (activation, knob values) meets on some GPU, and
    every GPU is; `everywhere`: each value meets each GPU too.

    Greedy over random cases: deterministic, and near the fewest there can be.
    """
    chosen = greedy(PLAIN, CHOICES, 6000 if everywhere else 3000, everywhere)
    for capability in CAPABILITIES:
        for activation in ("bf16", "fp16"):
            case = (gpu(capability), activation, DequantizeConfig(8, 1 + len(chosen) % 4, 0))
            if not config_violations(case[2], problem(activation), case[0]):
                chosen.append(case)
    return chosen


def compile_cases(cases: list[Case]) -> list[nvrtc.Cubin | CompileError]:
    """The cubin of each case or why there is none, compiled on all CPUs."""

    def one(case: Case) -> nvrtc.Cubin | CompileError:
        device, activation, config = case
        source = render(config, problem(activation))
        try:
            return nvrtc.compile_cubin(source, nvrtc.nvrtc_arch(source, device))
        except CompileError as error:
            return error

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(one, cases))


def greedy(
    plain: KernelConfig, choices: dict[str, tuple[int, ...]], tries: int, everywhere: bool
) -> list[Case]:
    """Of `tries` random cases, `plain` with other knobs, few in which all their pairs meet."""
    generator = random.Random(0)
    sampled = [case for case in (_draw(generator, plain, choices) for _ in range(tries)) if case]
    pairs = {case: _pairs(case, choices, everywhere) for case in sampled}
    missing = set().union(*pairs.values())
    chosen: list[Case] = []
    while missing:
        best = max(pairs, key=lambda case: len(pairs[case] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return chosen


def _draw(
    generator: random.Random, plain: KernelConfig, choices: dict[str, tuple[int, ...]]
) -> Case | None:
    device = gpu(generator.choice(CAPABILITIES))
    activation = generator.choice(("bf16", "fp16"))
    config = replace(plain, **{knob: generator.choice(v) for knob, v in choices.items()})
    if config_violations(config, problem(activation), device):
        return None
    return device, activation, config


def _pairs(case: Case, choices: dict[str, tuple[int, ...]], everywhere: bool) -> frozenset[object]:
    device, activation, config = case
    facts: list[object] = [("activation", activation)]
    facts += [(knob, getattr(config, knob)) for knob in choices]
    gpu = ("device", device.arch)
    return frozenset([gpu, *combinations([gpu, *facts] if everywhere else facts, 2)])
