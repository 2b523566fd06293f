"""Tables of what runs where, made from the rules of the kernel families and the readers of
checkpoints. Measures nothing; what stands around the tables is docs/support.md."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.quantization_error import FORMATS
from humming.checkpoints.registry import readers
from humming.spec.combinations import lost_value, rounds, why_not
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.dtypes import dtype
from humming.spec.formats import QuantFormat
from humming.spec.layouts import layout_for
from humming.spec.legality import families_for
from humming.spec.problem import Problem

_CAPABILITIES = ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))
_QUANTIZED_TOO = (
    "int4-int8",
    "int4g128-int8",
    "int8-int8",
    "uint4g128z-int8",
    "int4-fp8e4m3",
    "fp8e4m3-fp8e4m3",
    "fp8e4m3b128-fp8e4m3g128",
    "mxfp4-fp8e4m3",
    "int4-int4",
    "nvfp4-nvfp4",
)
_WEIGHTS = (
    *(f"int{bits}" for bits in range(1, 9)),
    *("fp3e1m1", "fp4e2m1", "fp5e2m2", "fp6e2m3", "fp6e3m2", "fp7e3m3"),
    *("fp8e3m4", "fp8e4m3", "fp8e5m2", "fp8e6m1"),
)
_ACTIVATIONS = ("bf16", "fp16", "fp8e4m3", "fp8e5m2", "int8", "int4", "fp4e2m1")
_N = _K = 4096


def devices() -> dict[str, Device]:
    """A device of each architecture, by the head of its column."""
    every_flag = tuple(sorted({flag for flags in CODE_PATH_FLAGS.values() for flag in flags}))
    found = {"CPU": Device("cpu", "CPU", "x86_64", 1 << 20, isa=every_flag)}
    for major, minor in _CAPABILITIES:
        name = f"sm{major}{minor}"
        found[name] = Device("cuda", name, name, 1 << 20, compute_capability=(major, minor))
    return found


def families_table() -> str:
    """Each format and the families that serve it, a column an architecture."""
    shown = (*FORMATS, *_QUANTIZED_TOO)
    rows = [[f"`{name}`", *_cells(name)] for name in shown]
    rows += [[f"`{name}`, act-order", *_cells(name, True)] for name in ("int4g128", "uint4g128z")]
    return _table(["format", *devices()], rows)


def readers_table() -> str:
    """Each reader of checkpoints, the formats that it gives, and where all of them run with x as it
    comes, which is how a layer is read unless it is asked to quantize x."""
    rows = []
    for reader in readers():
        named = [name for name in reader.formats if name != "..."]
        where = [head for head, device in devices().items() if _all_run(named, device)]
        formats = ", ".join(f"`{name}`" for name in named)
        more = ", and others alike" if "..." in reader.formats else ""
        rows.append(
            [reader.title, ", ".join(reader.methods), formats + more, ", ".join(where) or "-"]
        )
    return _table(["checkpoint", "`quant_method`", "formats", "all of their weights run on"], rows)


def combinations_table() -> str:
    """Each kind of weight and the activations that it may be multiplied with."""
    rows = []
    for weight in _WEIGHTS:
        cells = []
        for activation in _ACTIVATIONS:
            lost = lost_value(dtype(weight), dtype(activation))
            if activation in ("bf16", "fp16"):
                cells.append("rounds" if rounds(dtype(weight), dtype(activation)) else "exact")
            else:
                cells.append("exact" if lost is None else f"no: {lost:g}")
        rows.append([f"`{weight}`", *cells])
    return _table(["weight", *_ACTIVATIONS], rows)


def _cells(name: str, act_order: bool = False) -> list[str]:
    if why_not(name):
        return ["not defined"] * len(devices())
    return [", ".join(_families(name, device, act_order)) or "-" for device in devices().values()]


def _families(name: str, device: Device, act_order: bool = False) -> list[str]:
    """The families that serve `name` on `device` for bf16 activations, or fp16 where it has no
    bf16."""
    activation = "fp16" if device.compute_capability == (7, 5) else "bf16"
    problem = Problem(
        name,
        n=_N,
        k=_K,
        m=16,
        activation_dtype=activation,
        output_dtype=activation,
        layout=layout_for(device, name),
        act_order=act_order,
    )
    return families_for(problem, device)


def _all_run(names: Iterable[str], device: Device) -> bool:
    return all(_families(QuantFormat.parse(name).weight.name, device) for name in names)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
