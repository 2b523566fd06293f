"""Registers the torch ops `humming::linear` and `humming::moe_gemm`: to be imported before a
program that calls them is loaded, by torch.export.load or aoti_load_package. What they do is
serving/op.py and moe/op.py."""

from __future__ import annotations

from humming.moe import op as moe_op
from humming.serving import op as linear_op

__all__ = ["linear_op", "moe_op"]
