"""Quantized GEMM kernels, compiled just in time, dispatched by what was proved on this machine.

Names are loaded when first used, so that importing `humming` does nothing. No definitions here.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from humming.version import __version__

if TYPE_CHECKING:
    from humming.attach import attach
    from humming.convert import convert, prepare
    from humming.gemm import gemm
    from humming.linear import HummingLinear
    from humming.modes import set_batch_invariant
    from humming.moe.experts import HummingExperts
    from humming.moe.gemm import moe_gemm
    from humming.moe.module import HummingMoE
    from humming.moe.recording import record_routing
    from humming.quantize.quantizers import quantize
    from humming.quantize.tensor import QuantizedTensor
    from humming.report import report

__all__ = [
    "HummingExperts",
    "HummingLinear",
    "HummingMoE",
    "QuantizedTensor",
    "__version__",
    "attach",
    "convert",
    "gemm",
    "moe_gemm",
    "prepare",
    "quantize",
    "record_routing",
    "report",
    "set_batch_invariant",
]

_HOMES = {
    "HummingExperts": "humming.moe.experts",
    "HummingLinear": "humming.linear",
    "HummingMoE": "humming.moe.module",
    "QuantizedTensor": "humming.quantize.tensor",
    "moe_gemm": "humming.moe.gemm",
    "prepare": "humming.convert",
    "record_routing": "humming.moe.recording",
    "set_batch_invariant": "humming.modes",
}
_BOTH = ("attach", "convert", "gemm", "quantize", "report")


class _CallableModule(ModuleType):
    """A module whose main function has the module's own name: calling it calls that."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    """`humming.convert`, `humming.gemm` and `humming.quantize` are a function and a module at once.

    Whichever import comes first, the import system puts the module here; so the module is made
    callable as it arrives, and both `humming.quantize(w)` and `humming.quantize.pack` work.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _BOTH and type(value) is ModuleType:
            value.__class__ = _CallableModule
        super().__setattr__(name, value)


def __getattr__(name: str) -> Any:
    if name in ("checkpoints", *_BOTH):
        return import_module(f"humming.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'humming' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


sys.modules[__name__].__class__ = _Package
