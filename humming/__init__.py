"""Quantized GEMM kernels, compiled just in time, dispatched by what was proved on this machine.

Names are loaded when first used, so that importing `humming` does nothing. No definitions here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from humming.version import __version__

if TYPE_CHECKING:
    from humming.convert import convert
    from humming.gemm import gemm
    from humming.linear import HummingLinear, prepare
    from humming.quantize.tensor import QuantizedTensor, quantize

__all__ = [
    "HummingLinear",
    "QuantizedTensor",
    "__version__",
    "convert",
    "gemm",
    "prepare",
    "quantize",
]

_HOMES = {
    "HummingLinear": "humming.linear",
    "QuantizedTensor": "humming.quantize.tensor",
    "convert": "humming.convert",
    "gemm": "humming.gemm",
    "prepare": "humming.linear",
    "quantize": "humming.quantize.tensor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'humming' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
