"""GPTQ and AutoRound checkpoints: bits, zero points, act-order, rules. The packing is written here
anew, bit by bit; the library's own is in test_oracle_integers.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import humming.checkpoints
from humming.errors import CheckpointError, HummingError
from tests.checkpoints.making import (
    LAYER,
    random_codes,
    random_scales,
    stream,
    under,
    write_checkpoint,
)


def gptq_tensors(
    n: int, k: int, bits: int, size: int, version: int, act_order: bool = False, seed: int = 0
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """A module's tensors as the format's text says, and its weight [n, k] in float64."""
    groups = -(-k // size)
    codes, zeros = random_codes(k, n, bits, seed), random_codes(groups, n, bits, seed + 1)
    scales = random_scales(groups, n, seed + 2)
    g_idx = torch.arange(k) // size
    if act_order:
        g_idx = g_idx[torch.randperm(k, generator=torch.Generator().manual_seed(seed))]
    stored = zeros
    if version == 1:
        if bits == 3:
            stored = (zeros - 1) % 8
        else:  # a zero point of 0 borrows from its neighbour in the same word
            per_word = 32 // bits
            stored = torch.zeros_like(zeros)
            for start in range(0, n, per_word):
                places = zeros[:, start : start + per_word]
                shifts = torch.arange(places.shape[1]) * bits
                word = ((places << shifts).sum(1) - (1 << shifts).sum()) % (1 << 32)
                part = (word[:, None] >> shifts) & ((1 << bits) - 1)
                stored[:, start : start + per_word] = part
    weight = (codes - zeros[g_idx]).double() * scales[g_idx].double()
    tensors = {
        "qweight": stream(codes.t(), bits).t(),
        "qzeros": stream(stored, bits),
        "scales": scales,
        "g_idx": g_idx.to(torch.int32),
    }
    return tensors, weight.t()


def config(bits: int, size: int, version: int = 1, **more: Any) -> dict[str, Any]:
    stored = "gptq" if version == 1 else "gptq_v2"
    return {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": size,
        "checkpoint_format": stored,
        **more,
    }


@settings(max_examples=30, deadline=None)
@given(
    bits=st.sampled_from([2, 3, 4, 8]),
    n=st.sampled_from([8, 32, 33, 40, 96]),
    k=st.sampled_from([32, 40, 72, 100, 128, 200]),
    size=st.sampled_from([16, 32, 64, 1000]),
    version=st.sampled_from([1, 2]),
    act_order=st.booleans(),
    seed=st.integers(0, 99),
)
def test_weights_are_exact(
    tmp_path_factory: pytest.TempPathFactory,
    bits: int,
    n: int,
    k: int,
    size: int,
    version: int,
    act_order: bool,
    seed: int,
) -> None:
    group_size = -1 if size > k else size
    tensors, weight = gptq_tensors(n, k, bits, min(size, k), version, act_order, seed)
    folder = write_checkpoint(
        tmp_path_factory.mktemp("gptq"), under(LAYER, tensors), config(bits, group_size, version)
    )
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert layer.shape == (n, k)
    assert torch.equal(layer.dequantized(), weight)
    moved = act_order and size <= k and not torch.equal(tensors["g_idx"], torch.arange(k) // size)
    assert (layer.weight.permutation is not None) == moved


def test_a_symmetric_weight_is_signed(tmp_path: Path) -> None:
    tensors, _ = gptq_tensors(40, 64, 4, 32, 1)
    tensors["qzeros"] = stream(torch.full((2, 40), 7), 4)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), config(4, 32))
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert layer.format == "int4g32"
    assert layer.weight.zero_points is None
    assert int(layer.weight.codes.min()) >= -8


def test_dynamic_rules_say_bits_and_groups_of_single_modules(tmp_path: Path) -> None:
    four, whole = gptq_tensors(32, 64, 4, 32, 1)
    eight, wide = gptq_tensors(32, 64, 8, 64, 1)
    names = ("model.layers.0.mlp.up_proj", "model.layers.1.mlp.up_proj")
    dynamic = {
        "-:.*gate.*": {},
        r"+:.*\.layers\.1\..*": {"bits": 8, "group_size": 64},
        r".*\.1\..*": {"bits": 2},
    }
    folder = write_checkpoint(
        tmp_path,
        {**under(names[0], four), **under(names[1], eight)},
        config(4, 32, dynamic=dynamic),
    )
    checkpoint = humming.checkpoints.open(folder)
    assert torch.equal(checkpoint.layer(names[0]).dequantized(), whole)
    assert torch.equal(checkpoint.layer(names[1]).dequantized(), wide)


@pytest.mark.parametrize(
    ("packing", "version", "ordered"),
    [
        ("auto_round:auto_gptq", 1, True),
        ("auto_round:gptq:exllamav2", 1, False),
        ("auto_round", 2, False),
        ("auto_round:exllamav2", 2, False),
        ("auto_round:gptqmodel", 2, True),
    ],
)
def test_auto_round_packings(tmp_path: Path, packing: str, version: int, ordered: bool) -> None:
    tensors, weight = gptq_tensors(32, 96, 3, 32, version)
    if not ordered:
        del tensors["g_idx"]
    quantization = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "packing_format": packing,
        "extra_config": {
            ".*mlp.*": {"bits": 8},
            LAYER: {"bits": 3, "group_size": 32},
        },
    }
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    layer = humming.checkpoints.open(folder).layer(LAYER)
    assert torch.equal(layer.dequantized(), weight)


def test_auto_round_in_the_packing_of_awq(tmp_path: Path) -> None:
    from tests.checkpoints.test_awq import gemm_tensors

    tensors, weight = gemm_tensors(16, 64, 32)
    quantization = {
        "quant_method": "intel/auto-round",
        "bits": 4,
        "group_size": 32,
        "packing_format": "auto_round:auto_awq",
    }
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), quantization)
    assert torch.equal(humming.checkpoints.open(folder).layer(LAYER).dequantized(), weight)


@pytest.mark.parametrize("tool", ["gptq", "auto-round"])
def test_act_order_without_the_order_is_refused_where_it_matters(tmp_path: Path, tool: str) -> None:
    tensors, weight = gptq_tensors(32, 64, 4, 32, 1)
    del tensors["g_idx"]
    more = {"quant_method": tool, "packing_format": "auto_round:auto_gptq"}

    def read(**changes: Any) -> Any:
        folder = write_checkpoint(
            tmp_path, under(LAYER, tensors), {**config(4, 32), **more, **changes}
        )
        return humming.checkpoints.open(folder, changes.get("bare", False)).layer(LAYER)

    assert torch.equal(read().dequantized(), weight)
    assert torch.equal(read(desc_act=False, sym=None).dequantized(), weight)
    for bare in (False, True):
        with pytest.raises(CheckpointError, match=rf"must hold a tensor `{LAYER}\.g_idx`"):
            read(desc_act=True, bare=bare)
    if tool == "gptq":
        with pytest.raises(CheckpointError, match=r"g_idx`"):
            read(dynamic={r"+:.*mlp.*": {"desc_act": True}})
    tensors, weight = gptq_tensors(32, 64, 4, 64, 1)
    del tensors["g_idx"]
    for size in (-1, 64, 128):
        assert torch.equal(read(desc_act=True, group_size=size).dequantized(), weight)


def _without(name: str) -> Any:
    return lambda tensors: tensors.pop(name)


def _uneven(tensors: dict[str, torch.Tensor]) -> None:
    tensors["g_idx"][:5] = 1


def _far(tensors: dict[str, torch.Tensor]) -> None:
    tensors["g_idx"][0] = 900


def _put(name: str, value: torch.Tensor) -> Any:
    return lambda tensors: tensors.update({name: value})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_without("scales"), "scales"),
        (_without("qzeros"), "qzeros"),
        (_uneven, "unevenly"),
        (_far, "unevenly"),
        (_put("scales", torch.full((2, 32), torch.nan).half()), "NaN"),
        (_put("scales", torch.zeros(2, 32).half()), "a scale of 0"),
        (_put("scales", torch.ones(3, 32).half()), r"\[2, 32\], but is float16 \[3, 32\]"),
        (_put("qweight", torch.ones(8, 32)), "must be int32"),
        (_put("qweight", torch.ones(9, 32, dtype=torch.int32)), "must have 8 rows"),
        (_put("bias", torch.ones(31)), "bias"),
        (_put("bias", torch.full((32,), torch.nan)), rf"`{LAYER}\.bias` must be finite"),
        (_put("bias", torch.full((32,), -torch.inf)), rf"`{LAYER}\.bias` must be finite"),
        (_put("scales", torch.empty(0, 32).half()), "scales"),
    ],
)
def test_damaged_tensors_are_one_sentence(tmp_path: Path, spoil: Any, said: str) -> None:
    tensors, _ = gptq_tensors(32, 64, 4, 32, 1)
    spoil(tensors)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), config(4, 32))
    with pytest.raises(HummingError, match=said) as caught:
        humming.checkpoints.open(folder).layer(LAYER)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"bits": 5}, "`quantization_config.bits` must be one of 2, 3, 4, 8, but got 5"),
        ({"bits": "4"}, "bits"),
        ({"group_size": 0}, "group_size"),
        ({"desc_act": "x"}, r"`quantization_config\.desc_act` must be true or false, but got"),
        ({"desc_act": [4]}, r"`quantization_config\.desc_act` must be true or false, but got"),
        ({"desc_act": 1}, r"`quantization_config\.desc_act` must be true or false, but got 1"),
        ({"sym": -2}, r"`quantization_config\.sym` must be true or false, but got -2"),
        ({"dynamic": {".*": {"sym": "x"}}}, r"dynamic\.sym` must be true or false"),
        ({"bits": 8}, "`qweight` must have 16 rows"),
        ({"checkpoint_format": "gptq_p"}, "checkpoint_format"),
        ({"checkpoint_format": ["gptq"]}, "checkpoint_format"),
        ({"dynamic": []}, "group_size|dynamic|rows"),
        ({"dynamic": {"(": {}}}, "regular expression"),
        ({"quant_method": "exl3"}, "quant_method"),
        ({"quant_method": 3}, "quant_method"),
    ],
)
def test_bad_configs_are_one_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    tensors, _ = gptq_tensors(32, 64, 4, 32, 1)
    folder = write_checkpoint(tmp_path, under(LAYER, tensors), {**config(4, 32), **change})
    if change == {"dynamic": []}:
        humming.checkpoints.open(folder).layer(LAYER)
        return
    with pytest.raises(HummingError, match=said) as caught:
        humming.checkpoints.open(folder).layer(LAYER)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
