"""The source of the kernel that quantizes x, for a format and what is wanted of it. Its buffers and
launch are input_quantizer.py."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from humming.errors import FormatError, LayoutError
from humming.jit.cuda.source import INCLUDE_DIR, environment
from humming.jit.source import KernelSource, headers_of
from humming.spec.carriers import carrier_of
from humming.spec.formats import QuantFormat, TensorFormat

_CXX_TYPES = {"bf16": "Bf16", "fp16": "Fp16"}
_CARRIERS = {"int8": "Int8Carrier", "fp8e4m3": "E4m3Carrier", "fp8e5m2": "E5m2Carrier"}


@dataclass(frozen=True)
class InputRecipe:
    """What is made of x.

    activation    the format of x, such as "fp8e4m3g128"
    dtype         "bf16" or "fp16", the type of x
    output        "bytes": codes of 8 bits (of fewer in a byte that holds their value); "nibbles":
                  codes of 4 bits, two a byte; "numbers": codes times scales, in x's type
    silu_and_mul  x has 2k columns: silu(first half) * second half is quantized
    hadamard      columns that are rotated with each other before: 0, or a power of two up to 256
                  that divides k
    """

    activation: str
    dtype: str
    output: str = "bytes"
    silu_and_mul: bool = False
    hadamard: int = 0

    @property
    def format(self) -> TensorFormat:
        """The parsed format of x."""
        found = QuantFormat.parse(f"int8-{self.activation}").activation
        assert found is not None
        return found


@lru_cache(maxsize=256)
def input_source(recipe: InputRecipe) -> KernelSource:
    """The kernel of `recipe`. Raises FormatError where codes of its output do not hold the format,
    LayoutError where `hadamard` is no such size."""
    form, size = recipe.format, recipe.hadamard
    if size and not (size & (size - 1) == 0 and 2 <= size <= 256):
        raise LayoutError(f"hadamard must be a power of two up to 256, but got {size}")
    static = {
        "family": "quantize_input",
        "input": _CXX_TYPES[recipe.dtype],
        "codes": _codes(recipe),
        "carrier": _carrier(recipe),
        "scale_kind": _scale_kind(form),
        "output": recipe.output,
        "largest": f"{form.dtype.largest}f",
        "last_exponent": int(form.dtype.largest).bit_length(),
        "group_size": form.group_size or 0,
        "silu_and_mul": int(recipe.silu_and_mul),
        "hadamard": size,
        "hadamard_scale": f"{(size or 1) ** -0.5:.9e}f",
        "threads": 256,
        "held": 4,
    }
    text = environment().get_template("quantize_input.cu.j2").render(**static)
    headers = headers_of(text, INCLUDE_DIR)
    return KernelSource("quantize_input", text, "cuda", headers=headers, static=static)


def _scale_kind(form: TensorFormat) -> str:
    """The name of dequant/input_codes.cuh for how scales are made."""
    if not form.dynamic:
        return "fixed"
    return {None: "plain", "e8m0": "power_of_two"}.get(form.scale_dtype, "under_row")


def _codes(recipe: InputRecipe) -> str:
    """The C++ type of dequant/input_codes.cuh that rounds to the format."""
    form = recipe.format
    if recipe.output == "bytes" and form.dtype.name in _CARRIERS and form.scale_dtype is None:
        return "InputAsConverted"
    if form.dtype.is_integer:
        return "InputIntegers"
    return f"InputFloats<{form.dtype.exponent_bits}, {form.dtype.mantissa_bits}>"


def _carrier(recipe: InputRecipe) -> str:
    if recipe.output == "numbers":
        return "Int8Carrier"
    held = carrier_of(recipe.format)
    if held is None or (recipe.output == "nibbles" and recipe.format.dtype.bits != 4):
        raise FormatError(
            f"{recipe.output} do not hold the codes of '{recipe.activation}'; take output 'numbers'"
        )
    return _CARRIERS[held]
