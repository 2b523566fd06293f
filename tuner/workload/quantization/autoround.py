"""AutoRound: bits, data types and extra_config -> Quantization. Its config stands in config.json
or in quantization_config.json.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import Field

from humming.checkpoints.config.faults import fault, missing
from humming.checkpoints.config.names import NameList, path_names, regex_names
from humming.checkpoints.config.source import Source
from tuner.workload.quantization.scheme import (
    ADVICE,
    Quantization,
    Scheme,
    checked,
    integer_format,
    rules_by_scheme,
)
from tuner.workload.values import Values, validated

_Bits = Annotated[int, Field(ge=1, le=32)]
_PLAIN = re.compile(r"[\w.\-]+")


class _Scheme(Values):
    bits: _Bits | None = None
    group_size: int | list[int] | None = None
    sym: bool | None = None
    data_type: str | None = None
    act_bits: _Bits | None = None
    act_data_type: str | None = None
    act_group_size: int | None = None
    act_dynamic: bool | None = None


class _AutoRound(_Scheme):
    extra_config: dict[str, dict[str, Any]] | None = None
    block_name_to_quantize: str | list[Any] | None = None
    to_quant_block_names: str | list[Any] | None = None


def auto_round(source: Source) -> Quantization:
    """Layers of the named blocks in one scheme, but for those of `extra_config`, by full name or
    by a regular expression.
    """
    values = validated(_AutoRound, source.values, source.file, source.key)
    default = _scheme(values, source, "bits")
    rules = _extra(values, source)
    blocks = _blocks(values, source)
    if blocks:
        key = source.path("block_name_to_quantize")
        rules.append((path_names(blocks, source.file, key), default))
        default = None
    return Quantization(tuple(rules), default)


def _extra(values: _AutoRound, source: Source) -> list[tuple[NameList, Scheme | None]]:
    plain: list[tuple[str, Scheme | None]] = []
    rules: list[tuple[NameList, Scheme | None]] = []
    base = {name: getattr(values, name) for name in _Scheme.model_fields}
    for name, changes in (values.extra_config or {}).items():
        key = f"extra_config.{ascii(name)[1:-1]}"
        merged = validated(_Scheme, {**base, **changes}, source.file, source.path(key))
        scheme = _scheme(merged, source, key)
        if _PLAIN.fullmatch(name):
            plain.append((name, scheme))
        else:
            anywhere = name if name.startswith(("^", ".*")) else f".*(?:{name})"
            rules.append((regex_names(anywhere, source.file, source.path("extra_config")), scheme))
    listed = rules_by_scheme(
        plain, lambda names: path_names(names, source.file, source.path("extra_config"))
    )
    return [*listed, *rules]


def _blocks(values: _AutoRound, source: Source) -> list[str]:
    found: list[str] = []
    stack: list[Any] = [values.block_name_to_quantize or values.to_quant_block_names or []]
    while stack:
        entry = stack.pop()
        if isinstance(entry, list):
            stack += entry
        elif isinstance(entry, str):
            found += [name.strip() for name in entry.split(",") if name.strip()]
        else:
            key = source.path("block_name_to_quantize")
            raise fault(source.file, key, "made of module names", entry)
    return found


def _scheme(values: _Scheme, source: Source, key: str) -> Scheme | None:
    if values.bits is None:
        raise missing(source.file, source.path("bits"), "an integer from 1 to 16")
    if values.bits >= 16:
        return None
    kind = (values.data_type or "int").lower()
    name = _operand(kind, values.bits, values.group_size, values.sym is not False, source, key)
    if values.act_bits is not None and values.act_bits < 16:
        kind = (values.act_data_type or values.data_type or "int").lower()
        static = values.act_dynamic is False
        name += f"-{_activation(kind, values, static, source, key)}"
    return Scheme(checked(name, source, key))


def _operand(
    kind: str, bits: int, group_size: Any, symmetric: bool, source: Source, key: str
) -> str:
    if kind.startswith("mx_fp") and bits in (4, 8):
        return "mxfp4" if bits == 4 else "mxfp8e4m3"
    if kind.startswith("nv_fp") and bits == 4:
        return "nvfp4"
    if kind == "int" and not isinstance(group_size, list) and group_size != 0:
        return integer_format(bits, group_size, symmetric)
    if kind.startswith("fp") and bits == 8:
        return f"fp8e4m3{_scope(group_size)}"
    raise fault(source.file, source.path(key), "a data type that a format describes", kind, ADVICE)


def _activation(kind: str, values: _Scheme, static: bool, source: Source, key: str) -> str:
    bits = values.act_bits or 0
    if kind.startswith(("mx_fp", "nv_fp")):
        return _operand(kind, bits, None, True, source, key)
    group = values.act_group_size
    scope = "t" if static else f"g{group}" if group is not None and group > 0 else ""
    return f"int{bits}{scope}" if kind == "int" else f"fp8e4m3{scope}"


def _scope(group_size: Any) -> str:
    """Scales of a float weight: a tensor (0), a channel (-1), a group, or a square block."""
    if isinstance(group_size, list):
        return f"b{group_size[0]}" if len(set(group_size)) == 1 else "b0"
    if group_size is None or group_size == -1:
        return ""
    return "t" if group_size == 0 else f"g{group_size}"
