"""HQQ and torchao: libraries that quantize a loaded model -> Quantization."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import path_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.excluding import Excluding, excluded
from tuner.workload.quantization.scheme import ADVICE, Quantization, Scheme, checked
from tuner.workload.values import Values, validated

_GroupSize = Annotated[int, Field(ge=1, le=2**24)]


class _HqqWeights(Values):
    nbits: Annotated[int, Field(ge=1, le=8)]
    group_size: _GroupSize | None = None
    axis: int | None = None


class _HqqParts(Values):
    weight_quant_params: _HqqWeights


class _Hqq(Values):
    quant_config: _HqqParts
    skip_modules: list[str] | None = None


class _TorchAo(Excluding):
    quant_type: str | dict[str, Any]
    quant_type_kwargs: dict[str, Any] | None = None


class _Arguments(Values):
    group_size: _GroupSize | None = None
    granularity: Any = None


TORCHAO = {
    "int4weightonly": "uint4g{group}zf",
    "int8weightonly": "int8",
    "int8dynamicactivationint8weight": "int8-int8",
    "float8weightonly": "fp8e4m3",
    "float8dynamicactivationfloat8weight": "fp8e4m3-fp8e4m3",
}
TORCHAO_GROUP = 128


def hqq(source: Source) -> Quantization:
    """Codes from 0 with float zero points, in groups along k (axis 1); other axes have no name."""
    values = validated(_Hqq, source.values, source.file, source.key)
    weights = values.quant_config.weight_quant_params
    key = "quant_config.weight_quant_params"
    if weights.axis not in (None, 1):
        raise fault(source.file, source.path(f"{key}.axis"), "1", weights.axis, ADVICE)
    groups = f"g{weights.group_size}" if weights.group_size else ""
    name = checked(f"uint{weights.nbits}{groups}zf", source, key)
    left_out = path_names(values.skip_modules or [], source.file, source.path("skip_modules"))
    return Quantization(((left_out, None),), Scheme(name))


def torchao(source: Source) -> Quantization:
    """`quant_type` as a name with `quant_type_kwargs`, or as a typed object under "default"."""
    values = validated(_TorchAo, source.values, source.file, source.key)
    key = source.path("quant_type")
    kind, given = _type(values)
    arguments = validated(_Arguments, given, source.file, key)
    template = TORCHAO.get(kind.lower().replace("_", "").removesuffix("config"))
    rowwise = "PerRow" in str(arguments.granularity)
    if template is None or (kind.lower().startswith("float8dynamic") and not rowwise):
        expected = f"one of {', '.join(TORCHAO)} (activations per row)"
        raise fault(source.file, key, expected, kind, ADVICE)
    group = TORCHAO_GROUP if arguments.group_size is None else arguments.group_size
    scheme = Scheme(checked(template.format(group=group), source, "quant_type"))
    return Quantization(((excluded(values, source), None),), scheme)


def _type(values: _TorchAo) -> tuple[str, Any]:
    if isinstance(values.quant_type, str):
        return values.quant_type, values.quant_type_kwargs or {}
    default = values.quant_type.get("default")
    if not isinstance(default, dict) or not isinstance(default.get("_type"), str):
        return "", {}
    data = default.get("_data")
    return default["_type"], data if isinstance(data, dict) else {}
