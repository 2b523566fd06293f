"""Several weights as one, each with its own scales: exact, or refused in a sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from formats_strategy import formats
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.errors import LayoutError
from humming.quantize.drawn import drawn
from humming.quantize.slicing import concat_rows


def part(format, n, k=96, seed=0):
    return drawn(format, n, k, torch.Generator().manual_seed(seed), torch.bfloat16)


@settings(max_examples=60, deadline=None)
@given(format=formats, sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_a_fused_weight_has_the_numbers_of_its_parts(format, sizes):
    parts = [part(format, n, seed=seed) for seed, n in enumerate(sizes)]
    fused = concat_rows(parts)
    fused.check_numbers()
    assert torch.equal(fused.dequantize(), torch.cat([p.dequantize() for p in parts]))


def test_differing_scales_of_tensors_become_those_of_rows():
    one, two = part("fp8e4m3t", 16), part("fp8e4m3t", 8, seed=1)
    assert concat_rows([one, two]).format == "fp8e4m3"
    assert concat_rows([one, replace(two, scales=one.scales)]).format == "fp8e4m3t"


def test_differing_second_scales_become_one_a_row():
    one, two = part("nvfp4", 16), part("nvfp4", 8, seed=1)
    fused = concat_rows([one, two])
    assert fused.global_scales is not None and fused.global_scales.shape == (24,)
    assert concat_rows(
        [one, replace(two, global_scales=one.global_scales)]
    ).global_scales.shape == (1,)


def test_blocks_that_a_seam_cuts_become_groups():
    one, two = part("fp8e4m3b32", 16), part("fp8e4m3b32", 32, seed=1)
    assert concat_rows([one, two]).format == "fp8e4m3g32"
    assert concat_rows([two, one]).format == "fp8e4m3b32"


def test_parts_that_do_not_go_together_are_refused():
    order = torch.randperm(96).to(torch.int32)
    for other, sentence in (
        (part("int4g64", 8), "one format and one k"),
        (part("int4g32", 8, k=64), "one format and one k"),
        (replace(part("int4g32", 8), permutation=order), "one act-order"),
    ):
        with pytest.raises(LayoutError, match=sentence):
            concat_rows([part("int4g32", 8), other])
    with pytest.raises(LayoutError, match="at least one part"):
        concat_rows([])
