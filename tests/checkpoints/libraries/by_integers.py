"""Checkpoints of GPTQModel, AutoAWQ and AutoRound: weights on a grid, packed by their linear layers
and dequantized by them.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch

from tests.checkpoints.libraries.made import Made
from tests.checkpoints.making import LAYER, under

_NAMES = ("qweight", "qzeros", "scales", "g_idx", "bias")


@dataclass(frozen=True)
class Grid:
    """A linear layer whose weight lies on a grid of `scales` and `zeros` [n, groups]; `group` is
    the group of each column."""

    linear: torch.nn.Linear
    scales: torch.Tensor
    zeros: torch.Tensor
    group: torch.Tensor


def grid(
    n: int, k: int, bits: int, size: int, act_order: bool = False, middle: bool = False,
    least: int = 0,
) -> Grid:  # fmt: skip
    """Random codes, scales and zero points, of which none is below `least`, or all in the
    `middle`."""
    generator = torch.Generator().manual_seed(n + k + bits)
    groups = -(-k // size)
    scales = (torch.rand(n, groups, generator=generator) * 0.02 + 0.004).half().float()
    zeros = torch.randint(0, 1 << bits, (n, groups), generator=generator).clamp(min=least).float()
    codes = torch.randint(0, 1 << bits, (n, k), generator=generator).float()
    bias = torch.randn(n, generator=generator).half()
    if middle:
        zeros = torch.full_like(zeros, 1 << (bits - 1))
    group = torch.arange(k) // size
    if act_order:
        group = group[torch.randperm(k, generator=generator)]
    linear = torch.nn.Linear(k, n).half()
    with torch.no_grad():
        linear.weight.copy_((codes - zeros[:, group]) * scales[:, group])
        linear.bias.copy_(bias)
    return Grid(linear, scales, zeros, group)


def by_gptqmodel(
    n: int, k: int, size: int, bits: int, act_order: bool = False, version: int = 1
) -> Made:
    """A module of GPTQModel, its zero points as `version` 1 or 2 stores them."""
    home = import_module("gptqmodel.nn_modules.qlinear.torch")
    made = grid(n, k, bits, k if size == -1 else size, act_order)
    module = home.TorchLinear(
        bits=bits, group_size=size, sym=False, desc_act=act_order, in_features=k,
        out_features=n, bias=True,
    )  # fmt: skip
    module.pack(made.linear, made.scales, made.zeros, made.group.to(torch.int32))
    module.eval()
    module._init_wf_unsqueeze_buffers()
    expected = module.dequantize_weight().t()
    if version == 1:
        config = import_module("gptqmodel.quantization").QuantizeConfig(bits=bits, group_size=size)
        import_module("gptqmodel.utils.model").convert_gptq_v2_to_v1_format_module(module, config)
    quantization = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "desc_act": act_order,
        "sym": False,
        "checkpoint_format": "gptq" if version == 1 else "gptq_v2",
    }
    return Made(_tensors(module), quantization, {LAYER: expected})


def by_gptqmodel_awq(n: int, k: int, size: int, packing: str) -> Made:
    """AWQ as GPTQModel packs it."""
    ending = {"gemm": "torch_awq", "gemv": "gemv_awq"}[packing]
    home = import_module(f"gptqmodel.nn_modules.qlinear.{ending}")
    maker = home.AwqTorchLinear if packing == "gemm" else home.AwqGEMVLinear
    made = grid(n, k, 4, size)
    module = maker.__new__(maker)  # its __init__ wants the GPU kernel that it is for
    torch.nn.Module.__init__(module)
    module.bits, module.group_size, module.in_features, module.out_features = 4, size, k, n
    maker.pack(module, made.linear, made.scales, made.zeros)
    unpacking = import_module("gptqmodel.quantization.awq.utils.packing_utils")
    return _awq(module, made, packing, size, unpacking)


def by_auto_awq(n: int, k: int, size: int, packing: str) -> Made:
    """AWQ as AutoAWQ packs it."""
    home = import_module(f"awq.modules.linear.{packing}")
    maker = home.WQLinear_GEMM if packing == "gemm" else home.WQLinear_GEMV
    made = grid(n, k, 4, size)
    scales, zeros = made.scales, made.zeros
    if packing == "gemm":
        scales, zeros = scales.t().contiguous(), zeros.t().contiguous()
    module = maker.from_linear(made.linear, 4, size, scales=scales, zeros=zeros)
    return _awq(module, made, packing, size, import_module("awq.utils.packing_utils"))


def by_auto_round(n: int, k: int, size: int, bits: int, packing: str, symmetric: bool) -> Made:
    """AutoRound in its own packing ("auto_round") or in GPTQ's."""
    gptq = packing == "auto_round:auto_gptq"
    ending = "qlinear_torch_zp" if gptq else "qlinear_torch"
    home = import_module(f"auto_round_extension.torch.{ending}")
    # Its writer of GPTQ's packing cannot store a zero point of 0.
    made = grid(n, k, bits, size, middle=symmetric, least=int(gptq))
    module = home.QuantLinear(bits, size, k, n, True)
    module.device = "cpu"
    zeros: Any = 1 << (bits - 1) if symmetric else made.zeros.to(torch.int32)
    module.pack(made.linear, made.scales, zeros, None, device="cpu")
    tensors = _tensors(module)
    quantization = {
        "quant_method": "auto-round",
        "bits": bits,
        "group_size": size,
        "sym": symmetric,
        "packing_format": packing,
    }
    module.bias = None
    return Made(tensors, quantization, {LAYER: module(torch.eye(k)).t().half()})


def _awq(module: Any, made: Grid, packing: str, size: int, unpacking: Any) -> Made:
    tensors = _tensors(module)
    tensors[f"{LAYER}.scales"] = tensors[f"{LAYER}.scales"].half()
    expected = made.linear.weight.detach()
    if packing == "gemm":
        names = ("qweight", "qzeros", "scales")
        stored = (tensors[f"{LAYER}.{name}"] for name in names)
        expected = unpacking.dequantize_gemm(*stored, 4, size).t()
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": packing}
    return Made(tensors, config, {LAYER: expected.half()})


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    state = module.state_dict()
    return under(LAYER, {name: state[name].detach() for name in _NAMES if name in state})
