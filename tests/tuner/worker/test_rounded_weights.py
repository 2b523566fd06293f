"""What verification on a GPU allows for weights rounded to 16 bits: enough for every format and k,
and too little for one column in thousands that is left out."""

import pytest
import torch

from humming.spec.layouts import CUDA_LAYOUT
from humming.spec.problem import Problem
from tuner.worker.verify import make_case, rounded_weights

TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.mark.parametrize("format", ["int4g128", "nvfp4", "fp8e4m3", "int1g128"])
@pytest.mark.parametrize("k", [64, 1024, 4096])
@pytest.mark.parametrize("dtype", TYPES)
def test_rounded_weights_pass_and_a_lost_column_does_not(format, k, dtype):
    problem = Problem(format, 160, k, 32, dtype, dtype, layout=CUDA_LAYOUT)
    case = make_case(problem, 160, 1, torch.device("cpu"))
    bound = case.bound + rounded_weights(case.rows, case.quantized)

    def worst(w: torch.Tensor) -> float:
        out = (case.rows.double() @ w.double().T).to(TYPES[dtype]).double()
        return float(((out - case.expected).abs() / bound).max())

    assert worst(case.quantized.dequantize(TYPES[dtype])) < 0.8
    lacking = case.quantized.dequantize()
    lacking[:, 5] = 0
    assert worst(lacking) > 1.5


def test_without_that_allowance_short_k_would_be_refused():
    problem = Problem("int4g128", 160, 1024, 32, layout=CUDA_LAYOUT)
    case = make_case(problem, 160, 1, torch.device("cpu"))
    w = case.quantized.dequantize(torch.bfloat16).double()
    out = (case.rows.double() @ w.T).to(torch.bfloat16).double()
    assert float(((out - case.expected).abs() / case.bound).max()) > 1
