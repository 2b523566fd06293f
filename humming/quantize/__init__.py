"""Float weights to codes and scales, and codes to a packed layout. Kernels are elsewhere."""

from humming.quantize.experts import PackedExperts, pack_experts, unpack_experts
from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.quantizers import quantize
from humming.quantize.slicing import concat_rows
from humming.quantize.tensor import QuantizedTensor

__all__ = [
    "PackedExperts",
    "PackedWeight",
    "QuantizedTensor",
    "concat_rows",
    "pack",
    "pack_experts",
    "quantize",
    "unpack",
    "unpack_experts",
]
