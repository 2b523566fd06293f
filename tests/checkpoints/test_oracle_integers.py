"""GPTQ, AWQ and AutoRound checkpoints made by their public libraries, against the libraries' own
dequantized weights: equal bit for bit. Runs where the extra `oracles` is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import humming.checkpoints
from tests.checkpoints.making import LAYER, under, write_checkpoint


def grid(n: int, k: int, bits: int, size: int, seed: int = 0) -> tuple[Any, ...]:
    """A linear layer whose weight lies on a grid, and the grid's scales and zero points."""
    generator = torch.Generator().manual_seed(seed)
    groups = -(-k // size)
    linear = torch.nn.Linear(k, n, bias=True).half()
    scales = (torch.rand(n, groups, generator=generator) * 0.02 + 0.004).half().float()
    zeros = torch.randint(0, 1 << bits, (n, groups), generator=generator).float()
    codes = torch.randint(0, 1 << bits, (n, k), generator=generator).float()
    return linear, scales, zeros, codes


def fill(linear: torch.nn.Linear, codes: Any, scales: Any, zeros: Any, group: Any) -> None:
    with torch.no_grad():
        linear.weight.copy_((codes - zeros[:, group]) * scales[:, group])


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: tensor.detach().contiguous()
        for name, tensor in module.state_dict().items()
        if name in ("qweight", "qzeros", "scales", "g_idx", "bias")
    }


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(("n", "k", "size"), [(64, 96, 32), (32, 320, 128), (96, 160, -1)])
def test_gptq(
    tmp_path: Path, n: int, k: int, size: int, bits: int, act_order: bool, version: int
) -> None:
    torch_linear = pytest.importorskip("gptqmodel.nn_modules.qlinear.torch")
    converting = pytest.importorskip("gptqmodel.utils.model")
    quantizing = pytest.importorskip("gptqmodel.quantization")
    width = k if size == -1 else size
    linear, scales, zeros, codes = grid(n, k, bits, width)
    group = torch.arange(k) // width
    if act_order:
        group = group[torch.randperm(k, generator=torch.Generator().manual_seed(1))]
    fill(linear, codes, scales, zeros, group)
    module = torch_linear.TorchLinear(
        bits=bits, group_size=size, sym=False, desc_act=act_order, in_features=k,
        out_features=n, bias=True,
    )  # fmt: skip
    module.pack(linear, scales, zeros, group.to(torch.int32))
    module.eval()
    module._init_wf_unsqueeze_buffers()
    expected = module.dequantize_weight().t()
    if version == 1:
        converting.convert_gptq_v2_to_v1_format_module(
            module, quantizing.QuantizeConfig(bits=bits, group_size=size)
        )
    config = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "desc_act": act_order,
        "sym": False,
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
    }
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors_of(module)), config)
    ).layer(LAYER)
    assert expected.dtype == torch.float16
    assert torch.equal(layer.dequantized(torch.float16), expected)
    assert torch.equal(layer.bias, linear.bias.detach())


@pytest.mark.parametrize(("n", "k", "size"), [(32, 96, 32), (64, 320, 128), (40, 192, 64)])
@pytest.mark.parametrize("packing", ["gemm", "gemv"])
def test_awq(tmp_path: Path, n: int, k: int, size: int, packing: str) -> None:
    unpacking = pytest.importorskip("gptqmodel.quantization.awq.utils.packing_utils")
    linear, scales, zeros, codes = grid(n, k, 4, size)
    k -= k % size
    linear, codes = torch.nn.Linear(k, n).half(), codes[:, :k]
    scales, zeros = scales[:, : k // size], zeros[:, : k // size]
    group = torch.arange(k) // size
    fill(linear, codes, scales, zeros, group)
    name = "gptqmodel.nn_modules.qlinear." + ("torch_awq" if packing == "gemm" else "gemv_awq")
    home = pytest.importorskip(name)
    maker = home.AwqTorchLinear if packing == "gemm" else home.AwqGEMVLinear
    shell = maker.__new__(maker)
    torch.nn.Module.__init__(shell)
    shell.bits, shell.group_size, shell.in_features, shell.out_features = 4, size, k, n
    maker.pack(shell, linear, scales, zeros)
    tensors = tensors_of(shell)
    tensors["scales"] = tensors["scales"].half()
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": packing}
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors), config)
    ).layer(LAYER)
    if packing == "gemm":
        expected = unpacking.dequantize_gemm(
            tensors["qweight"], tensors["qzeros"], tensors["scales"], 4, size
        ).t()
    else:
        expected = linear.weight.detach()
    assert torch.equal(layer.dequantized(torch.float16), expected.half())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("n", "k", "size"), [(32, 96, 32), (96, 192, 64), (64, 320, 160)])
@pytest.mark.parametrize("packing", ["gemm", "gemv"])
def test_auto_awq(tmp_path: Path, n: int, k: int, size: int, packing: str) -> None:
    home = pytest.importorskip(f"awq.modules.linear.{packing}")
    unpacking = pytest.importorskip("awq.utils.packing_utils")
    linear, scales, zeros, codes = grid(n, k, 4, size)
    fill(linear, codes, scales, zeros, torch.arange(k) // size)
    maker = home.WQLinear_GEMM if packing == "gemm" else home.WQLinear_GEMV
    given = (
        (scales.t().contiguous(), zeros.t().contiguous()) if packing == "gemm" else (scales, zeros)
    )
    module = maker.from_linear(linear, 4, size, scales=given[0], zeros=given[1])
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": packing}
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors_of(module)), config)
    ).layer(LAYER)
    expected = linear.weight.detach()
    if packing == "gemm":
        expected = unpacking.dequantize_gemm(
            module.qweight, module.qzeros, module.scales, 4, size
        ).t()
    assert torch.equal(layer.dequantized(torch.float16), expected.half())
    assert torch.equal(layer.bias, linear.bias.detach())


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize(
    ("module_name", "packing"),
    [("qlinear_torch", "auto_round"), ("qlinear_torch_zp", "auto_round:auto_gptq")],
)
@pytest.mark.parametrize("symmetric", [True, False])
def test_auto_round(
    tmp_path: Path, module_name: str, packing: str, bits: int, symmetric: bool
) -> None:
    home = pytest.importorskip(f"auto_round_extension.torch.{module_name}")
    n, k, size = 64, 160, 32
    linear, scales, zeros, codes = grid(n, k, bits, size)
    if packing == "auto_round:auto_gptq":
        zeros = zeros.clamp(min=1)  # its writer cannot store less
    given: Any = zeros
    if symmetric:
        zeros = torch.full_like(zeros, 1 << (bits - 1))
        given = 1 << (bits - 1)
    fill(linear, codes, scales, zeros, torch.arange(k) // size)
    module = home.QuantLinear(bits, size, k, n, True)
    module.device = "cpu"
    module.pack(linear, scales, given if symmetric else given.to(torch.int32), None, device="cpu")
    config = {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": size,
        "packing_format": packing,
    }
    layer = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors_of(module)), config)
    ).layer(LAYER)
    assert layer.format == (f"int{bits}g32" if symmetric else f"uint{bits}g32z")
    identity = torch.eye(k)
    module.bias = None
    expected = module(identity).t()
    assert torch.equal(layer.dequantized(torch.float16), expected.half())
