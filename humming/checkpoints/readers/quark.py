"""AMD Quark: integers, fp8 and MX floats, as the config's `weight` of each layer says.

    weight             int4, uint4: int32, eight codes a word; per group transposed, [k, n / 8],
                       else [n, k / 8]. `pack_method` "reorder": low first, columns 0 2 4 6 1 3 5 7
                       of eight; "order": in order. int8, uint8, int2: one a number, per group
                       transposed, [k, n]. fp8 [n, k]. fp4, fp6: uint8 [n, k * bits / 8], low first
    weight_scale       one number, [n], per group [groups, n] of integers and [n, groups] of floats;
                       of `scale_format` "e8m0" bytes [n, k / 32]
    weight_zero_point  as codes: packed along n where they are; floats where `zero_point_type` says
    input_scale, bias

    w = (code - zero_point) * weight_scale

Two stages, fp8 per tensor and then integers, have `weight_scale` and `weight_scale_2`, which is the
integers': both are multiplied, in fp32. Rotations of x, and other stages, are refused.

Source: amd-quark, `quark/torch/utils/pack.py` and `export/nn/modules/realquantizer.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import NameList, path_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import from_words, signed
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.scopes import CHANNEL, FP8_NAMES, TENSOR, Scope, fp8_weight, signed_weight
from humming.checkpoints.small_floats import mx_weight, one_number
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.quantize.tensor import QuantizedTensor

SCALE, ZERO = "weight_scale", "weight_zero_point"
Spec = Mapping[str, Any]

_PER_WORD = 8
_ORDERS = {"reorder": (0, 4, 1, 5, 2, 6, 3, 7), "order": tuple(range(_PER_WORD))}
_MX = {
    "fp4": "mxfp4",
    "fp6_e2m3": "mxfp6e2m3",
    "fp6_e3m2": "mxfp6e3m2",
    "fp8_e4m3": "mxfp8e4m3",
    "fp8_e5m2": "mxfp8e5m2",
}
_FP8 = ("fp8_e4m3", "fp8_e5m2")
_BITS = {"int2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}
_INTEGERS = (torch.int8, torch.uint8, torch.int32)


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a Quark checkpoint."""
    layer = _layer(module)
    stages, key = _stages(layer.get("weight"), module)
    if module.has("input_rotation") or module.has("input_prescale"):
        raise module.fault(
            "x must be used as it is", "a rotation of it", "export without rotations"
        )
    if len(stages) == 2 and stages[0].get("dtype") in _FP8:
        first = one_number(module, SCALE)
        weight = _integers(module, stages[1], "_2", first, key)
    elif len(stages) == 1:
        weight = _weight(module, stages[0], key)
    else:
        expected = "one stage, or fp8 and then integers"
        raise fault(module.source.file, module.source.path(key), expected, stages)
    activation = _activation(layer.get("input_tensors"))
    static = activation is not None and activation.endswith("t")
    scale = one_number(module, "input_scale") if static else None
    n = weight.shape[0]
    return CheckpointLayer(
        module.name, weight, module.bias(n), activation, scale, dtype=module.dtype
    )


def _layer(module: StoredModule) -> Mapping[str, Any]:
    """The specification of this module: by name or glob, else the global one."""
    source = module.source
    for names, layer in _named(source):
        if names.matches((module.name,)):
            return layer
    found = source.values.get("global_quant_config")
    if not isinstance(found, Mapping):
        raise fault(source.file, source.path("global_quant_config"), "an object", found)
    return found


@lru_cache(maxsize=8)
def _named(source: Source) -> tuple[tuple[NameList, Mapping[str, Any]], ...]:
    """The modules that `layer_quant_config` names, of each specification."""
    named, key = source.values.get("layer_quant_config"), source.path("layer_quant_config")
    found: dict[str, tuple[list[str], Mapping[str, Any]]] = {}
    for name, layer in named.items() if isinstance(named, Mapping) else ():
        if isinstance(layer, Mapping):
            found.setdefault(json.dumps(layer, sort_keys=True), ([], layer))[0].append(name)
    return tuple((path_names(names, source.file, key), layer) for names, layer in found.values())


def _stages(stored: Any, module: StoredModule) -> tuple[list[Spec], str]:
    stages = stored if isinstance(stored, list) else [stored]
    key = "global_quant_config.weight"
    if not stages or not all(isinstance(stage, Mapping) for stage in stages):
        raise fault(module.source.file, module.source.path(key), "an object", stored)
    return stages, key


def _weight(module: StoredModule, spec: Spec, key: str) -> QuantizedTensor:
    dtype = str(spec.get("dtype")).lower()
    if spec.get("scale_format") == "e8m0" and dtype in _MX and spec.get("group_size") == 32:
        return mx_weight(module, _MX[dtype], "weight", SCALE)
    if dtype in _FP8:
        weight = module.tensor("weight", tuple(FP8_NAMES), (None, None))
        scope = _scope(module, spec, key)
        return fp8_weight(module, weight, module.scales(SCALE), scope, SCALE)
    return _integers(module, spec, "", None, key)


def _integers(
    module: StoredModule, spec: Spec, end: str, factor: torch.Tensor | None, key: str
) -> QuantizedTensor:
    """`end` of the names of scales and zero points; `factor` of an earlier stage."""
    dtype = str(spec.get("dtype")).lower()
    bits = _BITS.get(dtype)
    if bits is None:
        known = ", ".join((*_BITS, *_MX))
        raise fault(
            module.source.file, module.source.path(f"{key}.dtype"), f"one of {known}", dtype
        )
    scope = _scope(module, spec, key)
    grouped = scope.columns > 0
    scales = module.scales(f"{SCALE}{end}", shape=(None, None) if grouped else None)
    n = scales.shape[-1] if grouped else module.shape("weight")[0]
    codes = _codes(module.tensor("weight", _INTEGERS, (None, None)), dtype, n, grouped, module)
    zeros = _zero_points(module, f"{ZERO}{end}", dtype, n, grouped)
    if grouped:
        scales = scales.t()
    if factor is not None:
        scales = (scales.to(torch.float64) * factor.to(torch.float64)).to(torch.float32)
    if zeros is not None and zeros.dtype in FLOATS:
        return _with_float_zeros(module, codes, scales, zeros, scope, bits)
    said = spec.get("symmetric") is not False and dtype.startswith("int")
    return signed_weight(module, codes, scales, scope, f"{SCALE}{end}", bits, zeros, said)


def _codes(
    stored: torch.Tensor, dtype: str, n: int, grouped: bool, module: StoredModule
) -> torch.Tensor:
    """int8 [n, k], unsigned codes less 2^(bits-1)."""
    if _BITS[dtype] == 4:
        wide = _words(stored, module)
        codes = wide[:, :n].t() if grouped else wide
    else:
        codes = stored.t() if grouped else stored
    return _signed(codes, dtype).contiguous()


def _zero_points(
    module: StoredModule, suffix: str, dtype: str, n: int, grouped: bool
) -> torch.Tensor | None:
    """int8 in the shape of the scales, less 2^(bits-1) where unsigned; floats as stored."""
    stored = module.optional(suffix, (*FLOATS, *_INTEGERS), (None, None) if grouped else None)
    if stored is None:
        return None
    if stored.dtype in FLOATS:
        return stored.t() if grouped else stored
    if _BITS[dtype] == 4 and stored.dtype == torch.int32 and stored.ndim:
        wide = _words(stored.reshape(-1, stored.shape[-1]), module)[:, :n]
        return _signed(wide.t() if grouped else wide.reshape(-1), dtype)
    return _signed(stored.t() if grouped else stored, dtype)


def _words(words: torch.Tensor, module: StoredModule) -> torch.Tensor:
    """uint8 [rows, 8 * words], columns in their order."""
    export = module.source.values.get("export")
    stored = export.get("pack_method") if isinstance(export, Mapping) else None
    method = "reorder" if stored is None else str(stored)
    if method not in _ORDERS:
        known = " or ".join(_ORDERS)
        raise fault(module.source.file, module.source.path("export.pack_method"), known, method)
    if words.dtype != torch.int32:
        raise module.fault("packed codes must be int32", words.dtype, "the file is wrong")
    rows, width = words.shape
    places = from_words(words, 4, width * _PER_WORD).view(rows, width, _PER_WORD)
    return places[:, :, list(_ORDERS[method])].reshape(rows, width * _PER_WORD)


def _signed(codes: torch.Tensor, dtype: str) -> torch.Tensor:
    bits = _BITS[dtype]
    if dtype.startswith("u"):
        return signed(codes, bits)
    if codes.dtype == torch.uint8 and bits == 4:
        return signed(codes ^ 8, bits)
    return codes.to(torch.int8)


def _with_float_zeros(
    module: StoredModule,
    codes: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    scope: Scope,
    bits: int,
) -> QuantizedTensor:
    n, k = codes.shape
    middle = 1 << (bits - 1)
    laid = [
        scope.per_row(scope.laid(module, what, tensor, n, k), n)
        for what, tensor in ((SCALE, scales), (ZERO, zeros))
    ]
    shifted = laid[1].to(torch.float32) + middle
    unsigned = (codes.to(torch.int16) + middle).to(torch.uint8)
    name = f"uint{bits}{scope.of_integers()}zf"
    return module.checked(QuantizedTensor(name, unsigned, laid[0], shifted))


def _scope(module: StoredModule, spec: Spec, key: str) -> Scope:
    source = module.source
    scheme, axis = spec.get("qscheme") or "per_tensor", spec.get("ch_axis")
    size, block = spec.get("group_size"), spec.get("block_size")
    if scheme == "per_tensor":
        return TENSOR
    if scheme in ("per_channel", "per_token") and axis in (None, 0):
        return CHANNEL
    if scheme == "per_group" and type(size) is int and size > 0 and axis in (None, 1, -1):
        return Scope(1, size)
    if scheme == "per_block" and isinstance(block, list) and len(block) == 2:
        rows, columns = block
        if type(rows) is int and type(columns) is int and min(rows, columns) > 0:
            return Scope(rows, columns)
    expected = "per_tensor, per_channel (axis 0), per_group (axis 1) or per_block, with its size"
    raise fault(source.file, source.path(f"{key}.qscheme"), expected, scheme)


def _activation(stored: Any) -> str | None:
    """As a format's second half; None where x stays as it is or no name says how it is
    quantized."""
    spec = stored[-1] if isinstance(stored, list) and stored else stored
    if not isinstance(spec, Mapping):
        return None
    dtype, static = str(spec.get("dtype")).lower(), spec.get("is_dynamic") is False
    scheme = spec.get("qscheme") or "per_tensor"
    if spec.get("scale_format") == "e8m0" and dtype in _MX:
        return _MX[dtype]
    name = {"fp8_e4m3": "fp8e4m3", "fp8_e5m2": "fp8e5m2", "int8": "int8", "int4": "int4"}.get(dtype)
    if name is None or (scheme == "per_tensor") is not static:
        return None
    size = spec.get("group_size")
    return f"{name}t" if static else f"{name}g{size}" if scheme == "per_group" else name


READER = Reader(
    title="Quark",
    methods=("quark",),
    modules=having(SCALE),
    read=read,
    formats=("int4g128", "uint4g128z", "int8", "fp8e4m3t", "fp8e4m3", "mxfp4", "mxfp6e2m3"),
)
