"""NVIDIA ModelOpt: fp8, NVFP4, MX floats and integers, also mixed. The tensors tell which:

    weight fp8 [n, k]           weight_scale float: one number, [n], or blocks [.., .., ..] (FP8,
                                FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO); or e8m0 [n, k / 32] as bytes
                                (MXFP8), also called weight_scale_inv
    weight uint8 [n, k / 2]     weight_scale fp8 [n, k / 16], weight_scale_2 fp32 (NVFP4); or
                                weight_scale e8m0 [n, k / 32] as bytes (MXFP4); codes low first
    weight uint8 [n / 2, k]     weight_scale float [n, groups] (W4A16_AWQ, W4A8_AWQ): signed codes
                                of two rows a byte, the even row low
    weight int8 [n, k]          weight_scale float [n] (W8A16, W8A8_SQ_PER_CHANNEL)
    input_scale                 fp32, of static activations; bias [n]
    pre_quant_scale             [k], optional: x is multiplied by it

    w = code * weight_scale [* weight_scale_2]

`weight_scale_2` of W4A8_AWQ belongs to a second step to fp8, from which the weight does not change.
A `pre_quant_scale` has no place in a format; it is multiplied into the weight, given as floats.
`quantized_layers` of a mixed config says how x is quantized.

Source: TensorRT-Model-Optimizer, `modelopt/torch/export/quant_utils.py`, `quantization/qtensor/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import torch

from humming.checkpoints.config.names import NameList, path_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.packing import signed
from humming.checkpoints.readers import modelopt_experts
from humming.checkpoints.readers.modelopt_experts import ExpertPart
from humming.checkpoints.registry import Reader
from humming.checkpoints.scopes import CHANNEL, FP8_NAMES, TENSOR, Scope, fp8_weight, signed_weight
from humming.checkpoints.small_floats import mx_weight, nvfp4_weight, one_number
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

SCALES = ("weight_scale", "weight_scale_inv")
BLOCKS = (128, 64, 32, 16)
_ACTIVATIONS = {
    "FP8": "fp8e4m3t",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8e4m3",
    "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4",
    "W4A8_NVFP4_FP8": "fp8e4m3t",
    "W4A8_MXFP4_FP8": "fp8e4m3t",
    "W4A8_AWQ": "fp8e4m3t",
    "MXFP4": "mxfp4",
    "MXFP8": "mxfp8e4m3",
    "W8A8_SQ_PER_CHANNEL": "int8t",
    "INT8_SQ": "int8t",
}
_BY_METHOD = {"modelopt-fp4": "NVFP4", "modelopt-fp8": "FP8", "modelopt-mxfp8": "MXFP8"}
_MIXED = "MIXED_PRECISION"
_FUSED = "x is multiplied by pre_quant_scale first, which no format holds"


def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
    """Modules with scales beside a weight, and experts of a stack."""
    ends = tuple(f".{name}" for name in SCALES)
    found = (name.rpartition(".")[0] for name in files.names if name.endswith(ends))
    single = (name for name in found if f"{name}.weight" in files)
    return dict.fromkeys((*single, *modelopt_experts.modules(files)))


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a ModelOpt checkpoint."""
    part = ExpertPart.of(module)
    if part is not None:
        return _expert(module, part)
    weight = read_weight(module)
    n, k = weight.shape
    stored = one_number(module, "input_scale") if module.has("input_scale") else None
    activation, scale = _activation(module, stored)
    layer = CheckpointLayer(
        module.name, weight, module.bias(n), activation, scale, dtype=module.dtype
    )
    factors = module.optional("pre_quant_scale", FLOATS, (k,))
    return layer if factors is None else _folded(layer, factors)


def read_weight(module: StoredModule) -> QuantizedTensor:
    """The weight of `module`, whatever its tensors say that it is."""
    suffix = module.first(*SCALES)
    if suffix is None:
        raise module.files.missing(module.path(SCALES[0]))
    kind = module.files.info(module.path("weight")).dtype
    scales = module.files.info(module.path(suffix))
    is_exponent = scales.dtype in (torch.uint8, torch.float8_e8m0fnu)
    if kind in FP8_NAMES:
        if is_exponent:
            name = "mxfp8e4m3" if kind == torch.float8_e4m3fn else "mxfp8e5m2"
            return mx_weight(module, name, "weight", suffix)
        return _fp8(module, suffix)
    if kind == torch.int8:
        codes = module.tensor("weight", (torch.int8,), (None, None))
        return signed_weight(module, codes, module.scales(suffix), CHANNEL, suffix, 8)
    if is_exponent:
        return mx_weight(module, "mxfp4", "weight", suffix)
    if scales.dtype == torch.float8_e4m3fn:
        return nvfp4_weight(module, "weight", suffix, one_number(module, "weight_scale_2"))
    return _int4(module, suffix)


def _fp8(module: StoredModule, suffix: str) -> QuantizedTensor:
    weight = module.tensor("weight", tuple(FP8_NAMES), (None, None))
    scales = module.scales(suffix)
    return fp8_weight(module, weight, scales, _scope(module, weight, scales), suffix)


def _scope(module: StoredModule, weight: torch.Tensor, scales: torch.Tensor) -> Scope:
    n, k = weight.shape
    if scales.numel() == 1:
        return TENSOR
    sizes = [size for size in scales.shape if size != 1]
    if sizes == [n]:
        return CHANNEL
    for block in BLOCKS:
        shape = Scope(block, block).shape(n, k)
        if sizes == [size for size in shape if size != 1]:
            return Scope(block, block)
    raise module.fault(
        f"`weight_scale` of a weight [{n}, {k}] must be one, [{n}], or one a block of "
        f"{', '.join(map(str, BLOCKS))} squared",
        list(scales.shape),
        "the file is wrong",
    )


def _int4(module: StoredModule, suffix: str) -> QuantizedTensor:
    packed = module.tensor("weight", (torch.uint8,), (None, None))
    n, k = packed.shape[0] * 2, packed.shape[1]
    scales = module.scales(suffix, FLOATS, (n, None))
    groups = scales.shape[1]
    if k % groups:
        raise module.fault(
            f"`{suffix}` must hold equal groups of k={k}", f"{groups} groups", "the file is wrong"
        )
    nibbles = torch.stack((packed & 0xF, packed >> 4), dim=1).view(n, k)
    codes = signed(nibbles ^ 8, 4)
    scope = Scope(1, k // groups) if groups > 1 else CHANNEL
    return signed_weight(module, codes, scales, scope, suffix, 4)


def _folded(layer: CheckpointLayer, factors: torch.Tensor) -> CheckpointLayer:
    """`layer` for x as it is: its columns times `factors` in fp32; itself where those are ones."""
    if not factors.is_meta and bool((factors == 1).all()):
        return layer
    floats = (layer.dequantized() * factors.to(torch.float64)).to(torch.float32)
    return CheckpointLayer(layer.name, floats, layer.bias, dtype=layer.dtype, note=_FUSED)


def _expert(module: StoredModule, part: ExpertPart) -> CheckpointLayer:
    """One expert's gate, up or down of a stack."""
    weight = modelopt_experts.read_weight(module, part)
    stored = part.number("_input_scale") if part.has("_input_scale") else None
    activation, scale = _activation(module, stored)
    bias = modelopt_experts.bias(part)
    return CheckpointLayer(module.name, weight, bias, activation, scale, dtype=module.dtype)


def _activation(
    module: StoredModule, stored: torch.Tensor | None
) -> tuple[str | None, torch.Tensor | None]:
    """How x is quantized, and the `stored` scale where that is static."""
    found = _ACTIVATIONS.get(_algorithm(module).upper())
    if found is None or not found.endswith(("t", "nvfp4")):
        return found, None
    return (found[:-1] if found.endswith("t") and stored is None else found), stored


def _algorithm(module: StoredModule) -> str:
    """`quant_algo` of this module, "" where the config does not say."""
    source = module.source
    values: Mapping[str, Any] = source.values
    stored = values.get("quant_algo")
    if stored is None:
        method = str(values.get("quant_method", "")).lower().replace("_", "-")
        return _BY_METHOD.get(method, "")
    if str(stored).upper() != _MIXED:
        return str(stored)
    matching = (algorithm for names, algorithm in _named(source) if names.matches((module.name,)))
    return next(matching, "")


@lru_cache(maxsize=8)
def _named(source: Source) -> tuple[tuple[NameList, str], ...]:
    """The modules that `quantized_layers` names, of each algorithm."""
    layers = source.values.get("quantized_layers")
    names: dict[str, list[str]] = {}
    for name, layer in layers.items() if isinstance(layers, Mapping) else ():
        if isinstance(layer, Mapping):
            names.setdefault(str(layer.get("quant_algo") or ""), []).append(name)
    key = source.path("quantized_layers")
    return tuple((path_names(of, source.file, key), algorithm) for algorithm, of in names.items())


READER = Reader(
    title="ModelOpt",
    methods=("modelopt",),
    modules=modules,
    read=read,
    formats=(
        "fp8e4m3t",
        "fp8e4m3",
        "fp8e4m3b128",
        "nvfp4",
        "mxfp4",
        "mxfp8e4m3",
        "int4g128",
        "int8",
    ),
)
