"""BitNet b1.58: weights of -1, 0 and 1 under one scale a tensor.

    weight        uint8 [ceil(n / 4), k]: code + 1 in 2 bits, of rows i, i + h, i + 2 h and i + 3 h
                  of the height h in byte row i, the first low
    weight_scale  float [1]
    bias          [n], optional

    w = code * weight_scale    where `linear_class` is "autobitlinear"
    w = code / weight_scale    where it is "bitlinear", the default

Activations are quantized to int8 per token. With `quantization_mode` "online" files hold floats,
from which the model makes codes anew: w = round(w / mean |w|) * mean |w|; so does this reader.
Layers that normalise x themselves (`use_rms_norm`), and files that bitblas packed, are refused.

Source: transformers, `integrations/bitnet.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import path_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.small_floats import inverse, one_number
from humming.checkpoints.stored import FLOATS, StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.quantize.tensor import QuantizedTensor

FORMAT = "int2"
_PER_BYTE = 4
_SMALLEST_MEAN = 1e-5
_KEPT = ("lm_head", "embed_tokens", "embed_in", "wte")


def modules(files: TensorFiles, source: Source) -> Iterable[str]:
    """Modules with codes and a scale; of an online checkpoint those with a weight, but for what
    it leaves out, the head and embeddings."""
    if not _online(source):
        return having("weight_scale")(files, source)
    key = "modules_to_not_convert"
    stored: Any = source.values.get(key) or []
    listed = [name for name in stored if isinstance(name, str)] if isinstance(stored, list) else []
    left_out = path_names([*listed, *_KEPT], source.file, source.path(key))
    names = (name.removesuffix(".weight") for name in files.names if name.endswith(".weight"))
    return [
        name
        for name in names
        if len(files.info(f"{name}.weight").shape) == 2 and not left_out.matches((name,))
    ]


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of a BitNet checkpoint."""
    _check(module)
    weight = _rounded(module) if _online(module.source) else _packed(module)
    n = weight.shape[0]
    return CheckpointLayer(module.name, weight, module.bias(n), "int8", dtype=module.dtype)


def _packed(module: StoredModule) -> QuantizedTensor:
    packed = module.tensor("weight", (torch.uint8,), (None, None))
    codes = torch.cat([(packed >> (2 * at)) & 3 for at in range(_PER_BYTE)])
    if not codes.is_meta and bool((codes == 3).any()):
        raise module.fault("codes must be -1, 0 or 1", "2", "the file is damaged")
    stored = one_number(module, "weight_scale")
    kind = str(module.source.values.get("linear_class") or "bitlinear").lower()
    scale = stored if kind == "autobitlinear" else inverse(stored)
    n = codes.shape[0]
    return QuantizedTensor(
        FORMAT, codes.to(torch.int8) - 1, scale.reshape(1, 1).expand(n, 1).contiguous()
    )


def _rounded(module: StoredModule) -> QuantizedTensor:
    """Codes and scale as the model computes them in fp32."""
    weight = module.tensor("weight", FLOATS, (None, None)).to(torch.float32)
    divisor = 1.0 / weight.abs().mean().clamp(min=_SMALLEST_MEAN)
    codes = (weight * divisor).round().clamp(-1, 1).to(torch.int8)
    scales = (1.0 / divisor).reshape(1, 1).expand(weight.shape[0], 1)
    return QuantizedTensor(FORMAT, codes, scales.contiguous())


def _check(module: StoredModule) -> None:
    source = module.source
    stored = source.values.get("checkpoint_format") or "bitnet"
    if source.values.get("quant_method") == "bitblas" or stored == "bitblas":
        advice = "its packing is a kernel's own; use the model's other files"
        raise fault(source.file, source.path("checkpoint_format"), "bitnet", stored, advice)
    if source.values.get("use_rms_norm") is True or module.has("rms_norm.weight"):
        raise module.fault(
            "x must be used as it is",
            "a norm inside the linear layer",
            "keep this layer in its own module",
        )


def _online(source: Source) -> bool:
    return source.values.get("quantization_mode") == "online"


READER = Reader(
    title="BitNet",
    methods=("bitnet",),
    modules=modules,
    read=read,
    formats=("int2-int8",),
)
