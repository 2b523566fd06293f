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

CAPABILITIES = (
    (7, 5),
    (8, 0),
    (8, 6),
    (8, 7),
    (8, 9),
    (9, 0),
    (10, 0),
    (10, 3),
    (11, 0),
    (12, 0),
    (12, 1),
)
_SMEM = {(7, 5): (65536, 65536), (8, 0): (166912, 167936), (9, 0): (232448, 233472)}
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


def gpu(capability: tuple[int, int]) -> Device:
    block, sm = _SMEM.get(capability, (101376, 102400))
    return Device(
        "cuda",
        "a GPU",
        "sm{}{}".format(*capability),
        50 << 20,
        compute_capability=capability,
        sm_count=132,
        smem_bytes_per_block=block,
        smem_bytes_per_sm=sm,
    )


def problem(
    activation: str,
    n: int = 4096,
    k: int = 4096,
    m: int = 1,
    format: str = "int4g128",
    act_order: bool = False,
) -> Problem:
    return Problem(format, n, k, m, activation, activation, layout=CUDA_LAYOUT, act_order=act_order)


def cover() -> list[Case]:
    """Legal cases in which every legal pair of (capability, activation, knob values) meets.

    Greedy over random cases: deterministic, and near the fewest there can be.
    """
    generator = random.Random(0)
    sampled = [case for case in (_random_case(generator) for _ in range(6000)) if case]
    pairs = {case: _pairs(case) for case in sampled}
    missing = set().union(*pairs.values())
    chosen: list[Case] = []
    while missing:
        best = max(pairs, key=lambda case: len(pairs[case] & missing))
        chosen.append(best)
        missing -= pairs[best]
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


def _random_case(generator: random.Random) -> Case | None:
    device = gpu(generator.choice(CAPABILITIES))
    activation = generator.choice(("bf16", "fp16"))
    knobs = {knob: generator.choice(values) for knob, values in CHOICES.items()}
    config = replace(PLAIN, **knobs)
    if config_violations(config, problem(activation), device):
        return None
    return device, activation, config


def _pairs(case: Case) -> frozenset[object]:
    device, activation, config = case
    facts = [("device", device.arch), ("activation", activation)]
    facts += [(knob, getattr(config, knob)) for knob in CHOICES]
    return frozenset(combinations(facts, 2))
