"""Layers of a checkpoint put together and cut apart: fused q, k and v, tensor-parallel shares. The
law: it commutes with dequantizing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import humming.checkpoints
from humming.errors import HummingError
from tests.checkpoints.making import LAYER, under, write_checkpoint
from tests.checkpoints.test_gptq import config, gptq_tensors

ATTENTION = "model.layers.0.self_attn"
QKV = tuple(f"{ATTENTION}.{part}_proj" for part in "qkv")


def fp8_parts(folder: Path, block: int | None, static: bool = False) -> Any:
    tensors = {}
    for at, (name, n) in enumerate(zip(QKV, (48, 16, 16), strict=True)):
        scale = torch.rand(()) + 0.1
        if block is not None:
            scale = torch.rand(-(-n // block), -(-40 // block)) + 0.1
        part = {"weight": torch.randn(n, 40).to(torch.float8_e4m3fn), "weight_scale": scale}
        if static:
            part["input_scale"] = torch.tensor([0.5 + at])
        if at != 1:
            part["bias"] = torch.randn(n).bfloat16()
        tensors.update(under(name, part))
    quantization: dict[str, Any] = {"quant_method": "fp8"}
    if block is not None:
        quantization["weight_block_size"] = [block, block]
    if static:
        quantization["activation_scheme"] = "static"
    return humming.checkpoints.open(write_checkpoint(folder, tensors, quantization))


@pytest.mark.parametrize("block", [None, 16, 32])
def test_fused_parts_keep_their_scales_exactly(tmp_path: Path, block: int | None) -> None:
    checkpoint = fp8_parts(tmp_path, block)
    parts = [checkpoint.layer(name) for name in QKV]
    fused = checkpoint.layer(QKV)
    assert fused.name == "+".join(QKV)
    assert fused.shape == (80, 40)
    assert torch.equal(fused.dequantized(), torch.cat([part.dequantized() for part in parts]))
    assert fused.bias[48:64].tolist() == [0.0] * 16
    assert torch.equal(fused.bias[64:], parts[2].bias)


def test_a_fused_static_activation_takes_the_largest_scale(tmp_path: Path) -> None:
    fused = fp8_parts(tmp_path, None, static=True).layer(QKV)
    assert fused.activation == "fp8e4m3t"
    assert fused.activation_scale.tolist() == [2.5]


def test_shares_of_fused_layers_take_a_share_of_each_part(tmp_path: Path) -> None:
    checkpoint = fp8_parts(tmp_path, 16)
    wholes = [checkpoint.layer(name).dequantized().chunk(4) for name in QKV]
    for rank in range(4):
        share = checkpoint.layer(QKV, rows=(rank, 4))
        assert torch.equal(share.dequantized(), torch.cat([whole[rank] for whole in wholes]))


@settings(max_examples=12, deadline=None)
@given(
    bits=st.sampled_from([2, 3, 4, 8]),
    size=st.sampled_from([16, 32, 48, 96]),
    act_order=st.booleans(),
    ranks=st.sampled_from([2, 3, 4, 6]),
    seed=st.integers(0, 50),
)
def test_slicing_commutes_with_loading(
    tmp_path_factory: pytest.TempPathFactory,
    bits: int,
    size: int,
    act_order: bool,
    ranks: int,
    seed: int,
) -> None:
    """Also where a rank's share begins inside a group."""
    n, k = 24, 144
    tensors, weight = gptq_tensors(n, k, bits, size, 2, act_order, seed)
    folder = write_checkpoint(
        tmp_path_factory.mktemp("tp"), under(LAYER, tensors), config(bits, size, 2)
    )
    checkpoint = humming.checkpoints.open(folder)
    shares = [checkpoint.layer(LAYER, columns=(rank, ranks)) for rank in range(ranks)]
    assert torch.equal(torch.cat([share.dequantized() for share in shares], dim=1), weight)
    rows = [checkpoint.layer(LAYER, rows=(rank, ranks)) for rank in range(ranks)]
    assert torch.equal(torch.cat([share.dequantized() for share in rows]), weight)


def test_a_group_that_straddles_ranks(tmp_path: Path) -> None:
    """1728 = 13.5 * 128."""
    tensors, weight = gptq_tensors(8, 3456, 4, 128, 2)
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors), config(4, 128, 2))
    )
    for rank in range(2):
        share = checkpoint.layer(LAYER, columns=(rank, 2))
        assert torch.equal(share.dequantized(), weight[:, 1728 * rank : 1728 * (rank + 1)])


@pytest.mark.parametrize(
    "share", [(0, 5), (3, 3), (-1, 2), (0, 0)]
)  # fmt: skip
def test_shares_that_do_not_fit_are_refused(tmp_path: Path, share: tuple[int, int]) -> None:
    checkpoint = fp8_parts(tmp_path, None)
    with pytest.raises(HummingError, match="must hold, but got n=48"):
        checkpoint.layer(QKV, rows=share)


def test_parts_that_are_not_alike_are_refused(tmp_path: Path) -> None:
    tensors = {
        **under(QKV[0], {"weight": torch.randn(8, 16).to(torch.float8_e4m3fn),
                         "weight_scale": torch.ones(1)}),
        **under(QKV[1], {"weight": torch.randn(8, 16).bfloat16()}),
        **under(QKV[2], {"weight": torch.randn(8, 32).to(torch.float8_e4m3fn),
                         "weight_scale": torch.ones(1)}),
    }  # fmt: skip
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, tensors, {"quant_method": "fp8"})
    )
    for names in (QKV[:2], (QKV[0], QKV[2])):
        with pytest.raises(HummingError, match="must be stored alike"):
            checkpoint.layer(names)


def test_a_float_layer_is_quantized_on_demand_only(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, {f"{LAYER}.weight": torch.randn(8, 128).half()}, None)
    layer = humming.checkpoints.open(folder).layer(LAYER)
    with pytest.raises(HummingError, match="keeps it as fp16; name a format"):
        layer.quantized_weight()
    assert layer.quantized_weight("int8").format == "int8"


def test_a_stored_format_is_kept(tmp_path: Path) -> None:
    layer = fp8_parts(tmp_path, None).layer(QKV[0])
    assert layer.quantized_weight().format == "fp8e4m3t"
    assert layer.quantized_weight("fp8e4m3t-fp8e4m3").format == "fp8e4m3t-fp8e4m3"
    with pytest.raises(HummingError, match="stored in, fp8e4m3t, but got format='int4g128'"):
        layer.quantized_weight("int4g128")


def test_experts_of_an_uneven_width(tmp_path: Path) -> None:
    """640 = 5 * 128 in halves of 2.5 groups, each expert with scales of its own."""
    block, tensors, wholes = "model.layers.0.mlp.experts", {}, []
    for expert in range(3):
        part, whole = gptq_tensors(16, 640, 4, 128, 2, seed=7 * expert)
        tensors.update(under(f"{block}.{expert}.down_proj", part))
        wholes.append(whole)
    checkpoint = humming.checkpoints.open(write_checkpoint(tmp_path, tensors, config(4, 128, 2)))
    for rank in range(2):
        shares = checkpoint.experts(block, "down_proj", columns=(rank, 2))
        assert {share.format for share in shares} == {"uint4g64z"}, rank
        for share, whole in zip(shares, wholes, strict=True):
            assert torch.equal(share.dequantized(), whole.chunk(2, dim=1)[rank])


@pytest.mark.parametrize("ranks", [2, 3, 5, 6])
def test_all_ranks_have_one_format(tmp_path: Path, ranks: int) -> None:
    k = 96 * ranks
    weight = torch.randn(40, k).to(torch.float8_e4m3fn)
    tensors = {"weight": weight, "weight_scale_inv": torch.rand(2, -(-k // 32)) + 0.1}
    quantization = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    checkpoint = humming.checkpoints.open(
        write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    )
    whole = checkpoint.layer(LAYER).dequantized()
    for split, form in ((ranks, "fp8e4m3b32"), (2 * ranks, "fp8e4m3g16")):
        shares = [checkpoint.layer(LAYER, columns=(rank, split)) for rank in range(split)]
        assert {share.weight.format for share in shares} == {form}
        assert torch.equal(torch.cat([share.dequantized() for share in shares], dim=1), whole)
