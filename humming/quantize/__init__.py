"""Float weights to codes and scales, and codes to a packed layout. Kernels are elsewhere."""

from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.quantizers import quantize
from humming.quantize.slicing import concat_rows
from humming.quantize.tensor import QuantizedTensor

__all__ = ["PackedWeight", "QuantizedTensor", "concat_rows", "pack", "quantize", "unpack"]
