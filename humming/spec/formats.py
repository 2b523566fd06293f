"""Quantization formats by name: parse and print `int4g128`, `mxfp4-fp8e4m3`. What a device can run
is in legality.py.

Grammar, `<weight>[-<activation>]`; without an activation it is the module's own fp16, bf16 or fp32:

    int<b>[g<G>]  uint<b>[g<G>](z|zf)      integers per channel or in groups of G; integer or float
                                           zero points
    fp<b>e<E>m<M>[t|g<G>|b<B>]             floats; per channel, tensor, groups of G, or B x B blocks
    mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8e4m3 mxfp8e5m2 mxint8
                                           blocks of 32, e8m0 scales (OCP MX v1.0)
    nvfp4                                  groups of 16, fp8e4m3 scales under one fp32 scale

An activation is quantized per token and dynamically unless it says otherwise: `t` is static per
tensor, `g<G>` dynamic per token and group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from humming.errors import FormatError
from humming.spec.dtypes import DType, dtype

_MX = {
    "mxfp4": "fp4e2m1",
    "mxfp6e2m3": "fp6e2m3",
    "mxfp6e3m2": "fp6e3m2",
    "mxfp8e4m3": "fp8e4m3",
    "mxfp8e5m2": "fp8e5m2",
    "mxint8": "int8",
}
_PLAIN = re.compile(r"(?P<dtype>u?int\d+|fp\d+e\d+m\d+)(?P<scope>t|[gb]\d+)?(?P<zero>zf|z)?$")
_SCOPES = {"t": "tensor", "g": "group", "b": "block"}


@dataclass(frozen=True)
class TensorFormat:
    """How one operand is stored.

    `granularity` says what shares a scale: "tensor", "channel" (a weight's row), "token" (an
    activation's row), "group" of `group_size` along k, or "block" of `group_size` squared.
    `zero_point` is None, "int" or "float". `scale_dtype` is None where the scale is a float of the
    tensor's owner. `second_scale` marks an fp32 scale over all scales (nvfp4). `dynamic` is False
    where an activation's scale is stored in the checkpoint.
    """

    name: str
    dtype: DType
    granularity: str
    group_size: int | None = None
    zero_point: str | None = None
    scale_dtype: str | None = None
    second_scale: bool = False
    dynamic: bool = True

    def groups(self, k: int) -> int:
        """How many scales lie along a row of length k; the last group may be ragged."""
        return -(-k // self.group_size) if self.group_size else 1


@dataclass(frozen=True)
class QuantFormat:
    """A weight format and, where activations are quantized too, an activation format."""

    weight: TensorFormat
    activation: TensorFormat | None = None

    def __str__(self) -> str:
        return self.weight.name + (f"-{self.activation.name}" if self.activation else "")

    @staticmethod
    def parse(name: str) -> QuantFormat:
        """The format called `name`. Raises FormatError with the rule, the value and an example."""
        if not isinstance(name, str):
            raise FormatError(f"a format is text such as 'int4g128', but got {name!r}")
        return _parse(name)


@lru_cache(maxsize=1024)
def _parse(name: str) -> QuantFormat:
    weight, dash, activation = name.partition("-")
    if not weight or (dash and not activation):
        raise FormatError(
            f"a format must read <weight>[-<activation>], but got '{name}'; write for example "
            "int4g128 or mxfp4-fp8e4m3"
        )
    return QuantFormat(
        _operand(weight, name, is_weight=True),
        _operand(activation, name, is_weight=False) if activation else None,
    )


def _operand(text: str, name: str, is_weight: bool) -> TensorFormat:
    if text in _MX:
        return TensorFormat(text, dtype(_MX[text]), "group", 32, scale_dtype="e8m0")
    if text == "nvfp4":
        return TensorFormat(
            text, dtype("fp4e2m1"), "group", 16, scale_dtype="fp8e4m3", second_scale=True
        )
    match = _PLAIN.match(text)
    if not match:
        raise FormatError(
            "a format is made of int1-8, uint1-8z, fp<bits>e<E>m<M>, mxfp4, mxfp6, mxfp8, mxint8 "
            "or nvfp4, "
            f"but got '{text}' in '{name}'; write for example int4g128, uint4g128z, fp8e4m3b128"
        )
    scope, zero = match["scope"] or "", match["zero"]
    stored = dtype(match["dtype"])
    size = int(scope[1:]) if scope[1:] else None
    granularity = _SCOPES[scope[0]] if scope else ("channel" if is_weight else "token")
    _check(name, text, stored, granularity, size, zero, is_weight)
    return TensorFormat(
        text,
        stored,
        granularity,
        size,
        zero_point={"z": "int", "zf": "float", None: None}[zero],
        dynamic=is_weight or granularity != "tensor",
    )


def _check(
    name: str,
    text: str,
    stored: DType,
    granularity: str,
    size: int | None,
    zero: str | None,
    is_weight: bool,
) -> None:
    if stored.kind == "float" and stored.bits > 8:
        raise FormatError(f"a quantized float has 3 to 8 bits, but got '{text}' in '{name}'")
    if (stored.kind == "uint") != (zero is not None):
        raise FormatError(
            f"unsigned codes go with a zero point and signed ones without, but got '{text}' in "
            f"'{name}'; "
            f"write for example int4g128, uint4g128z or uint4g64zf"
        )
    if size is not None and (size < 1 or str(size) not in text):
        raise FormatError(f"`group_size >= 1` must hold, but got '{text}' in '{name}'")
    if granularity in ("tensor", "block") and stored.kind != "float":
        raise FormatError(
            f"per-tensor and block scales go with floats, but got '{text}' in '{name}'; use per "
            "channel or g<G>"
        )
    if not is_weight and (zero or granularity == "block"):
        raise FormatError(
            f"an activation has no zero point and no blocks, but got '{text}' in '{name}'; use g<G>"
        )
