"""Float weights to codes and scales, and codes to a packed layout. Kernels are elsewhere."""

from humming.quantize.layout import PackedWeight, pack, unpack
from humming.quantize.tensor import QuantizedTensor, quantize

__all__ = ["PackedWeight", "QuantizedTensor", "pack", "quantize", "unpack"]
