"""AutoRound: integers in GPTQ's, AWQ's or its own packing, fp8, and MX and NV floats; bits and
group size of single layers in `extra_config`, by name or regular expression. The tensors tell the
kind:

    qweight              by `packing_format`:
        auto_round:auto_gptq, auto_round:gptq   as gptq.py, zero points less 1
        auto_round, auto_round:exllamav2, ..    as gptq.py, zero points as they are
        auto_round:auto_awq, auto_round:awq     as awq.py, gemm
    weight_packed uint8  with weight_scale e8m0 as bytes [n, k / 32] (`data_type` mx_fp): mxfp4;
                         with fp8 [n, k / 16] and what they were divided by, weight_global_scale
                         (nv_fp): nvfp4
    weight fp8           with weight_scale e8m0 as bytes: mxfp8e4m3; of floats: as fp8.py

Source: AutoRound, `auto_round/export/export_to_autoround/` and
`auto_round_extension/torch/qlinear_torch.py`, `qlinear_torch_zp.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import path_names, regex_names
from humming.checkpoints.config.source import Source
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.readers import awq, fp8
from humming.checkpoints.readers.gptq import Grouping, read_packed
from humming.checkpoints.registry import Reader, having
from humming.checkpoints.small_floats import inverse, mx_weight, nvfp4_weight, one_number
from humming.checkpoints.stored import StoredModule
from humming.checkpoints.tensor_files import TensorFiles

_PLAIN = re.compile(r"[\w.\-]+")
_GPTQ = ("auto_gptq", "gptq")
_AWQ = ("auto_awq", "awq")
_OWN = ("auto_round", "exllamav2", "tritonv2", "triton", "gptqmodel", "marlin", "torch")


def modules(files: TensorFiles, source: Source) -> Iterable[str]:
    """Modules with packed codes, or with an fp8 weight and its scales."""
    packed = having("qweight", "scales", "weight_packed")(files, source)
    return dict.fromkeys((*packed, *fp8.modules(files, source)))


def read(module: StoredModule) -> CheckpointLayer:
    """One layer of an AutoRound checkpoint."""
    values = _values(module)
    if not module.has("qweight"):
        return _read_floats(module, str(values.get("data_type") or "int").lower())
    grouping, packing = Grouping.of(values, module.source), _packing(module.source)
    if packing in _AWQ:
        return awq.read_gemm(module, awq.checked(grouping, module))
    return read_packed(module, grouping, less_one=packing in _GPTQ)


def _read_floats(module: StoredModule, kind: str) -> CheckpointLayer:
    if not module.has("weight_packed") and not kind.startswith("mx_fp"):
        return fp8.read(module)
    if kind.startswith("mx_fp"):
        packed = "weight_packed" if module.has("weight_packed") else "weight"
        format = "mxfp4" if packed == "weight_packed" else "mxfp8e4m3"
        weight = mx_weight(module, format, packed, "weight_scale")
    elif kind.startswith("nv_fp"):
        shared = inverse(one_number(module, "weight_global_scale"))
        weight = nvfp4_weight(module, "weight_packed", "weight_scale", shared)
    else:
        source = module.source
        raise fault(source.file, source.path("data_type"), "int, fp, mx_fp or nv_fp", kind)
    bits = module.source.values.get("act_bits")
    activation = weight.format if type(bits) is int and bits <= 8 else None
    bias = module.bias(weight.shape[0])
    return CheckpointLayer(module.name, weight, bias, activation, dtype=module.dtype)


def _packing(source: Source) -> str:
    """The packing in `packing_format`: "gptq" of "auto_round:gptq:exllamav2". Without one, as old
    files are, AutoRound's own."""
    stored = source.values.get("packing_format") or source.values.get("backend") or "auto_round"
    steps = str(stored).lower().replace("auto-round", "auto_round").split(":")
    packing = steps[1] if steps[0] == "auto_round" and len(steps) > 1 else steps[0]
    if packing not in (*_GPTQ, *_AWQ, *_OWN):
        known, key = "auto_gptq, auto_awq or auto_round", source.path("packing_format")
        raise fault(source.file, key, known, stored, "export it in one of these")
    return packing


def _values(module: StoredModule) -> Mapping[str, Any]:
    """The config's values with those of `extra_config` for this module: a full name or a run of its
    steps goes before a regular expression."""
    source = module.source
    extra = source.values.get("extra_config") or {}
    if not isinstance(extra, Mapping):
        raise fault(source.file, source.path("extra_config"), "an object", extra)
    for plain in (True, False):
        for name, changes in extra.items():
            if bool(_PLAIN.fullmatch(name)) is plain and _means(name, plain, module):
                if not isinstance(changes, Mapping):
                    raise fault(
                        source.file, source.path("extra_config"), "made of objects", changes
                    )
                return {**source.values, **changes}
    return source.values


def _means(name: str, plain: bool, module: StoredModule) -> bool:
    file, key = module.source.file, module.source.path("extra_config")
    if plain:
        return path_names([name], file, key).matches((module.name,))
    anywhere = name if name.startswith(("^", ".*")) else f".*(?:{name})"
    return regex_names(anywhere, file, key).matches((module.name,))


READER = Reader(
    title="AutoRound",
    methods=("auto-round",),
    modules=modules,
    read=read,
    formats=("int4g128", "uint4g128z", "int2g128", "int3g128", "int8g128", "fp8e4m3", "mxfp4"),
)
