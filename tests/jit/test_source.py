"""Rendered sources: what they depend on, and what their hashes cover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from humming.jit.cpu_types import WHOLE_ROW
from humming.jit.source import INCLUDE_DIR, pool_source, read_probe_source, render
from humming.spec.config import CpuConfig
from humming.spec.problem import Problem

CONFIG = CpuConfig("stream", "generic", 1, 32, 128, 2, 1024, 1)
PROBLEM = Problem("int4g128", 64, 128, 1)


def test_shapes_share_one_source_and_dtypes_do_not():
    first = render(CONFIG, PROBLEM)
    assert render(CONFIG, replace(PROBLEM, n=999, k=4096, m=7, bias=True)) == first
    assert render(CONFIG, replace(PROBLEM, output_dtype="fp32")).text != first.text
    assert render(replace(CONFIG, unroll=4), PROBLEM).text != first.text


def test_constants_are_named_and_nothing_is_left_unrendered():
    source = render(CONFIG, PROBLEM)
    for line in ("block_n = 32;", "prefetch_bytes = 1024;", "Activation = humming::Bf16;"):
        assert line in source.text
    assert "{{" not in source.text
    assert source.static["unroll"] == 2
    assert source.static["activation_dtype"] == "bf16"


def test_headers_are_those_included_and_flags_those_of_the_code_path():
    stream = dict(render(CONFIG, PROBLEM).headers)
    blocked = dict(render(replace(CONFIG, mainloop="blocked", code_path="avx2"), PROBLEM).headers)
    assert "humming/isa/generic.h" in stream
    assert "humming/isa/avx2.h" not in stream
    assert "humming/scheduler/parallel.h" in stream  # included by a header, not by the template
    assert "humming/mainloop/blocked.h" in blocked
    assert all((INCLUDE_DIR / name).is_file() and len(sha) == 64 for name, sha in stream.items())
    assert render(CONFIG, PROBLEM).flags == ()
    assert "-mf16c" in render(replace(CONFIG, code_path="avx2"), PROBLEM).flags
    assert "-mavx512bw" in read_probe_source("avx512").flags
    assert pool_source().flags == ()


def test_bf16_products_are_picked_by_the_code_path_and_flags_are_spelt_for_the_compiler():
    narrow = render(replace(CONFIG, code_path="avx512"), PROBLEM)
    wide = render(replace(CONFIG, code_path="avx512_bf16"), PROBLEM)
    assert "Product = humming::Fp32Product<Dequant>;" in narrow.text
    assert "Product = humming::Bf16PairProduct<Dequant>;" in wide.text
    assert set(wide.flags) - set(narrow.flags) == {"-mavx512bf16"}


@pytest.mark.parametrize(
    ("format", "dequant", "group_size"),
    [
        ("int4g128", "Symmetric<humming::Int4>", 128),
        ("int8", "Symmetric<humming::Integer<8, true>>", 0),
        ("uint3g64z", "ZeroPoint<humming::Integer<3, false>, true>", 64),
        ("uint4zf", "ZeroPoint<humming::Integer<4, false>, false>", WHOLE_ROW),
        ("fp8e4m3t", "Symmetric<humming::SmallFloat<4, 3, humming::Specials::kNan>>", 0),
        ("fp8e5m2b128", "Symmetric<humming::SmallFloat<5, 2, humming::Specials::kIeee>>", 128),
        ("nvfp4", "Symmetric<humming::SmallFloat<2, 1, humming::Specials::kNone>>", 16),
    ],
)
def test_a_format_picks_its_types(format, dequant, group_size):
    text = render(CONFIG, replace(PROBLEM, format=format)).text
    assert f"using Dequant = humming::{dequant};" in text
    assert f"group_size = {group_size};" in text


def test_formats_that_differ_in_nothing_a_kernel_sees_share_a_source():
    one, other = replace(PROBLEM, format="fp8e4m3"), replace(PROBLEM, format="fp8e4m3t")
    assert render(CONFIG, one).text == render(CONFIG, other).text
    assert render(CONFIG, replace(one, act_order=True)).text != render(CONFIG, one).text
