"""Batch invariance: a row of x gives the same bits whatever rows stand beside it.

On GPUs: test_cuda_serving.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import humming
from humming.dispatch.dispatcher import resolve
from humming.dispatch.heuristics import heuristic, heuristic_intervals
from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.errors import LegalityError, UsageError
from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.jit.load import load
from humming.quantize import pack, quantize
from humming.spec.config import BlasConfig
from humming.spec.invariance import sum_order
from humming.spec.layouts import layout_for
from humming.spec.legality import check_config, config_violations, families_for
from humming.spec.problem import M_END, Problem
from tests.gpus import gpu as described

ROWS = (1, 3, 17, 40)


@pytest.fixture(autouse=True)
def _off_again():
    yield
    humming.set_batch_invariant(False)


def layer_of(format, n=80, k=288, dtype=torch.bfloat16):
    torch.manual_seed(0)
    linear = torch.nn.Linear(k, n, dtype=dtype)
    return humming.HummingLinear.from_linear(linear, format)


@pytest.mark.parametrize(
    ("format", "dtype"),
    [
        ("int4g32", torch.bfloat16),
        pytest.param("fp8e4m3", torch.float32, marks=pytest.mark.slow),
        pytest.param("int8-int8", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("uint3g64z", torch.float16, marks=pytest.mark.slow),
    ],
)
def test_a_row_has_the_same_bits_whatever_m(format, dtype):
    layer = layer_of(format, dtype=dtype)
    x = torch.randn(max(ROWS), 288).to(dtype)
    usual = layer(x)
    humming.set_batch_invariant(True)
    whole = layer(x)
    torch.testing.assert_close(whole, usual, rtol=2e-2, atol=2e-2)
    for m in ROWS:
        for start in (0, max(ROWS) - m):
            rows = slice(start, start + m)
            assert torch.equal(layer(x[rows]), whole[rows]), (m, start)
            assert torch.equal(layer(x[rows]), whole[rows])  # the warm call too
    (plan,) = layer._plans.values()
    assert plan.problem.batch_invariant
    torch._dynamo.reset()  # the limit of compilations is one for all layers
    compiled_layer = torch.compile(layer, backend="eager", fullgraph=True, dynamic=True)
    with torch.no_grad():
        assert torch.equal(compiled_layer(x[:7]), whole[:7])


def test_configs_of_one_order_give_the_same_bits():
    """Of each order that the heuristic uses on this CPU, all configs that differ in tiles."""
    device = cpu_device(1)
    problem = Problem("int4g32", 80, 288, 16, layout="cpu_n16k8")
    q = quantize(torch.randn(80, 288), "int4g32")
    weight, x = pack(q), torch.randn(11, 288, dtype=torch.bfloat16)
    by_order = {}
    for _, _, base in heuristic_intervals(problem, device)[:2]:
        for block_m, block_n in ((1, 16), (2, 32), (4, 16)):
            config = replace(base, block_m=block_m, block_n=block_n)
            if config_violations(config, problem, device):
                continue
            kernel = load(compiled(config, problem, device), device)
            out = torch.empty(11, 80, dtype=torch.bfloat16)
            kernel.launch(x, weight, None, out, None, 1)
            by_order.setdefault(sum_order(config), []).append(out)
    assert by_order and None not in by_order
    for outs in by_order.values():
        assert all(torch.equal(out, outs[0]) for out in outs)


@settings(max_examples=25, deadline=None)
@given(
    format=st.sampled_from(["int4g128", "uint4g64z", "mxfp4", "fp8e4m3", "int3g32", "nvfp4"]),
    n=st.sampled_from([16, 1000, 4096, 28672]),
    k=st.sampled_from([64, 520, 4096, 14336]),
    capability=st.sampled_from([(7, 5), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0)]),
    on_cpu=st.booleans(),
)
def test_the_heuristic_is_of_one_order_and_legal_for_every_m(format, n, k, capability, on_cpu):
    device = cpu_device(4) if on_cpu else described(capability)
    layout = layout_for(device, format)
    problem = Problem(format, n, k, 1, layout=layout, batch_invariant=True)
    if on_cpu or "mma" in families_for(problem, device):
        spans = heuristic_intervals(problem, device)
        assert spans[0][0] == 0 and spans[-1][1] == M_END
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        (order,) = {sum_order(config) for _, _, config in spans}
        assert order is not None
        for low, high, config in spans:
            for m in (max(low, 1), min(high - 1, 1 << 20)):
                check_config(config, problem.at(m), device)
            assert heuristic(problem.at(low), device) == config
    else:
        with pytest.raises(LegalityError, match="batch invariance"):
            heuristic_intervals(problem, device)


def test_torchs_matmul_is_refused():
    problem = Problem("int4g128", 64, 128, 1, "fp32", "fp32", batch_invariant=True)
    device = cpu_device(1)
    assert "blas" not in families_for(problem, device)
    with pytest.raises(LegalityError, match="batch invariance is asked for"):
        check_config(BlasConfig("generic", 64), problem, device)


def test_a_tuned_layer_is_served_by_records_of_one_order():
    machine = here()
    plain = Problem("int4g128", 4096, 4096, 0, layout="cpu_n16k8")
    problem = replace(plain, batch_invariant=True)
    base = heuristic(problem.at(1), machine.device)
    other = replace(base, unroll=2)
    assert sum_order(other) != sum_order(base)
    spans = [(1, 3, 1, base), (3, 9, 4, other), (9, 40, 16, replace(base, prefetch_bytes=2048))]
    intervals = tuple(Interval(*span, 1.0, 2.0, f"r{span[2]}") for span in spans)
    table = TunedTable("t", (TableEntry(machine, problem, intervals),))
    found = resolve(problem, machine, table)
    assert len({sum_order(d.config) for d in found}) == 1
    assert {d.record for d in found} == {None, "r1", "r16"}
    assert all(d.source == "heuristic" for d in resolve(plain, machine, table))


def test_what_is_no_bool_gets_a_sentence():
    with pytest.raises(UsageError, match="takes True or False"):
        humming.set_batch_invariant("yes")
