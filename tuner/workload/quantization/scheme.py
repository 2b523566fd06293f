"""Quantization: which format each of a checkpoint's modules is stored in. How tools spell it is in
methods.py and its like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from humming.checkpoints.config.faults import fault
from humming.checkpoints.config.names import NameList
from humming.checkpoints.config.source import Source
from humming.errors import FormatError
from humming.spec.formats import QuantFormat


@dataclass(frozen=True)
class Scheme:
    """How a module is stored: a format's name, and whether k is permuted by activation (GPTQ's
    desc_act with groups).
    """

    format: str
    act_order: bool = False


@dataclass(frozen=True)
class Quantization:
    """Ordered rules, then a default. A scheme of None means that the module is kept in the model's
    own float type.
    """

    rules: tuple[tuple[NameList, Scheme | None], ...]
    default: Scheme | None

    def scheme(self, names: Sequence[str]) -> Scheme | None:
        """The scheme of the module that goes by any of `names`; the first rule that means it
        decides.
        """
        for listed, scheme in self.rules:
            if listed.matches(names):
                return scheme
        return self.default


def rules_by_scheme(
    entries: Iterable[tuple[str, Scheme | None]],
    listed: Callable[[list[str]], NameList],
) -> list[tuple[NameList, Scheme | None]]:
    """One rule for each scheme, in order of first appearance, so that long lists are looked up
    once.
    """
    names: dict[Scheme | None, list[str]] = {}
    for name, scheme in entries:
        names.setdefault(scheme, []).append(name)
    return [(listed(found), scheme) for scheme, found in names.items()]


def checked(format: str, source: Source, key: str) -> str:
    """`format`; ModelError where no format is called so, since the values under `key` do not go
    together.
    """
    try:
        return str(QuantFormat.parse(format))
    except FormatError:
        expected = "a quantization that a format name can express"
        raise fault(source.file, source.path(key), expected, format, ADVICE) from None


def integer_format(bits: int, group_size: int | None, symmetric: bool) -> str:
    """int4g128, or uint4g128z with zero points; a group size of None or -1 means one scale per
    channel.
    """
    groups = "" if group_size is None or group_size == -1 else f"g{group_size}"
    return f"int{bits}{groups}" if symmetric else f"uint{bits}{groups}z"


ADVICE = "correct the file, or plan the unquantized model with --format"
