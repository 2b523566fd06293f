"""Element types at a kernel's edges: every 16-bit input, one rounding to nearest even out."""

from __future__ import annotations

import pytest
import torch
from kernel_cases import code_paths, configs_of, kernel, launch, typed_code_paths

from humming.jit.load import TORCH_DTYPES
from humming.quantize import PackedWeight, QuantizedTensor, pack


def passes_first_column() -> PackedWeight:
    """w[1, 32] = (1, 0, 0, ...): out is x's first column, so only conversions are left."""
    codes = torch.zeros(1, 32, dtype=torch.int8)
    codes[0, 0] = 1
    return pack(QuantizedTensor("int4g128", codes, torch.ones(1, 1)))


def rows_of(values: torch.Tensor) -> torch.Tensor:
    x = torch.zeros(len(values), 32, dtype=values.dtype)
    x[:, 0] = values
    return x


@pytest.mark.parametrize(("code_path", "dtype"), typed_code_paths("bf16", "fp16"))
def test_every_16_bit_input_is_read_exactly(code_path, dtype):
    values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(TORCH_DTYPES[dtype])
    loaded = kernel(configs_of(code_path)["blocked"], dtype, "fp32")
    out = launch(loaded, rows_of(values), passes_first_column())[:, 0]
    assert torch.equal(out.isnan(), values.isnan())
    assert torch.equal(out.nan_to_num(), values.float().nan_to_num())


@pytest.mark.parametrize("code_path", code_paths("fp32"))
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_outputs_are_rounded_once_to_nearest_even(code_path, dtype):
    near = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(TORCH_DTYPES[dtype]).float()
    near = near[near.isfinite()]
    above = torch.nextafter(near, torch.tensor(float("inf")))
    ties = (near + torch.roll(near, 1)) / 2
    beyond_ties = torch.cat([torch.nextafter(ties, torch.tensor(s * 1e39)) for s in (1.0, -1.0)])
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), 3.4e38, 65519.9, 65520.0])
    values = torch.cat([near, above, ties, beyond_ties, special])
    loaded = kernel(configs_of(code_path)["blocked"], "fp32", dtype)
    out = launch(loaded, rows_of(values), passes_first_column())[:, 0]
    expected = values.to(TORCH_DTYPES[dtype])
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.float().nan_to_num(nan=0.0), expected.float().nan_to_num(nan=0.0))


@pytest.mark.parametrize("code_path", code_paths("fp32"))
def test_an_fp32_nan_with_any_payload_stays_a_nan(code_path):
    bits = torch.tensor([0x7F800001, 0x7FFFFFFF, 0x7FC00000, -1], dtype=torch.int32)
    for dtype in ("bf16", "fp16"):
        loaded = kernel(configs_of(code_path)["stream"], "fp32", dtype)
        out = launch(loaded, rows_of(bits.view(torch.float32)), passes_first_column())
        assert bool(out.isnan().all())
