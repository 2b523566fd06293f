"""Every weight format by the family wgmma: odd shapes, act-order, both activation types. Needs a
Hopper GPU."""

from __future__ import annotations

import pytest
import torch
from cuda_cases import problem
from format_cases import FORMATS, random_weight
from gpu_cases import Errors, case_of, compile_problems, device, dtypes, kernel_for, launch
from wgmma_cases import HOPPER, wgmma_configs

from humming.spec.config import WgmmaConfig
from humming.spec.legality import config_violations, problem_violations
from humming.spec.problem import Problem

pytestmark = pytest.mark.gpu

SHAPES = ((24, 1000), (1537, 776), (40, 333), (648, 520), (16, 1128), (129, 513), (200, 4104))
"""The second and the last with act-order."""
Call = tuple[WgmmaConfig, Problem]


def _calls(format: str) -> list[Call]:
    """A config and a shape for each activation type that the family takes with `format`; from one
    format to the next all take the next, so that each meets each kind of format."""
    calls: list[Call] = []
    configs = wgmma_configs()
    for index, dtype in enumerate(dtypes()):
        turn = 3 * FORMATS.index(format) + index
        n, k = SHAPES[turn % len(SHAPES)]
        asked = problem(dtype, n, k, 70, format, act_order=turn % len(SHAPES) in (1, 6))
        if problem_violations("wgmma", asked, device()):
            continue
        order = [configs[(turn + i) % len(configs)] for i in range(len(configs))]
        legal = [c for c in order if not config_violations(c, asked, device())]
        calls.append((legal[0], asked))
    return calls


@pytest.fixture(scope="module", autouse=True)
def _hopper():
    if device().compute_capability != HOPPER:
        pytest.fail("the family wgmma needs compute capability 9.0; deselect its tests here")


@pytest.fixture(scope="module", autouse=True)
def _compiled(request):
    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    asked = {call.params.get("format") for call in calls}
    compile_problems([call for format in FORMATS if format in asked for call in _calls(format)])


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_as_exact_as_torch(format):
    assert _calls(format), "no activation type is taken"
    for config, asked in _calls(format):
        errors, loaded = Errors(), kernel_for(config, asked)
        for seed in range(-(-64 // asked.n)):
            made = torch.Generator("cuda").manual_seed(seed * 7919)
            dtype = asked.activation_dtype
            q = random_weight(format, asked.n, asked.k, dtype, made, asked.act_order)
            operands = case_of(q, dtype, made)
            for m in (1, 33, 70):
                x = (operands.odd_x if m == 33 else operands.x)[:m]
                call = (loaded, x, operands.packed, operands.bias if m == 70 else None)
                out = launch(*call)
                if seed == 0:
                    assert torch.equal(out, launch(*call)), f"{config} {asked}"
                errors.add(out, operands, m, m == 70)
        errors.check(f"{config} {asked}")
