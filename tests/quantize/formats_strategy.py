"""Formats and weights for laws that hold for all of them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

SMALL_FLOATS = [
    f"fp{bits}e{exponent}m{bits - 1 - exponent}"
    for bits in range(3, 9)
    for exponent in range(1, bits)
]
GROUPS = st.sampled_from([8, 16, 24, 32, 64, 128])


@st.composite
def integer_formats(draw):
    bits = draw(st.integers(1, 8))
    scope = draw(st.one_of(st.just(""), GROUPS.map("g{}".format)))
    zero = draw(st.sampled_from(["", "z", "zf"]))
    return f"{'u' if zero else ''}int{bits}{scope}{zero}"


@st.composite
def float_formats(draw):
    stored = draw(st.sampled_from(SMALL_FLOATS))
    size = draw(GROUPS)
    return stored + draw(st.sampled_from(["", "t", f"g{size}", f"b{size}"]))


microscaled = st.sampled_from(
    ["mxfp4", "mxfp6e2m3", "mxfp6e3m2", "mxfp8e4m3", "mxfp8e5m2", "mxint8", "nvfp4"]
)
formats = st.one_of(integer_formats(), float_formats(), microscaled)


def weight(n: int, k: int, seed: int) -> torch.Tensor:
    """fp32 [n, k] with a few large numbers and a row of zeros."""
    draw = torch.Generator().manual_seed(seed)
    w = torch.randn(n, k, generator=draw)
    w[torch.rand(n, k, generator=draw) < 0.02] *= 20
    if n > 3:
        w[2] = 0
    return w


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are the same type, shape and bytes."""
    as_bytes = [t.clone(memory_format=torch.contiguous_format).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*as_bytes)
