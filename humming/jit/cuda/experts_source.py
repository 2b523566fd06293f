"""Render the kernels around grouped products: constants into a template, never code. Products
themselves are source.py."""

from __future__ import annotations

from humming.jit.cuda.source import INCLUDE_DIR, environment
from humming.jit.cuda.weight_constants import CXX_TYPES
from humming.jit.source import KernelSource, headers_of


def experts_source(activation_dtype: str = "bf16", kind: str = "silu") -> KernelSource:
    """Sorting, tiles, activation `kind` and weighted sum for tensors of this type."""
    picks = {"activation": CXX_TYPES[activation_dtype], "kind": kind}
    text = environment().get_template("experts.cu.j2").render(**picks)
    return KernelSource(
        family="experts",
        text=text,
        language="cuda",
        headers=headers_of(text, INCLUDE_DIR),
        static={"family": "experts", "activation_dtype": activation_dtype, "kind": kind},
    )
