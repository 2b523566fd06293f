"""An inspection for a person: equal layers of different blocks in one line. What is in it is found
in layers.py.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from humming.spec.naming import counted
from tuner.inspecting.layers import FloatRow, Inspection, LayerRow, RefusedRow

Row = TypeVar("Row", LayerRow, FloatRow, RefusedRow)
_MIB = 2**20


def print_inspection(found: Inspection, console: Console) -> None:
    """Tables of the layers, and a line of totals."""
    if found.layers:
        console.print(_layers(found.layers))
    if found.unquantized:
        console.print(_floats(found.unquantized))
    for name, row, count in _alike(found.refused, lambda row: row.why.replace(row.name, "")):
        console.print(f"cannot be read: {name}{_times(count)}: {row.why}", soft_wrap=True)
    console.print(_totals(found), soft_wrap=True)


def _layers(rows: Iterable[LayerRow]) -> Table:
    table = Table("quantized layer", "count", "n", "k", "format", "scales", "bits", box=None)
    for name, row, count in _alike(rows, lambda row: (row.n, row.k, row.format, row.scales)):
        scales = f"{row.scales}{' + zero points' if row.zero_points else ''}"
        order = " act-order" if row.act_order else ""
        table.add_row(
            name,
            str(count),
            str(row.n),
            str(row.k),
            f"{row.format}{order}",
            scales,
            f"{row.bits:.3f}",
        )
    return table


def _floats(rows: Iterable[FloatRow]) -> Table:
    table = Table("not quantized", "count", "n", "k", "type", "why", box=None)
    for name, row, count in _alike(rows, lambda row: (row.n, row.k, row.dtype, row.why)):
        table.add_row(name, str(count), str(row.n), str(row.k), row.dtype, row.why)
    return table


def _totals(found: Inspection) -> str:
    totals = found.totals
    tool = found.tool or "not quantized"
    bits = totals["bits_per_weight"]
    each = "" if bits is None else f", {bits:.3f} bits a weight with scales"
    read = totals["layers_read"]
    how = "headers alone" if not read else f"headers, and the numbers of {counted(read, 'layer')}"
    return (
        f"{found.model}: {tool}; {counted(totals['layers'], 'quantized layer')} of "
        f"{totals['weights']:,} weights{each}; {counted(totals['unquantized_layers'], 'layer')} of "
        f"{totals['unquantized_weights']:,} weights as floats; "
        f"{_size(totals['file_bytes'])} in all (from {how})"
    )


def _alike(rows: Iterable[Row], key: object) -> list[tuple[str, Row, int]]:
    """(name with * for numbers, first row, count) of rows that are alike but for those numbers."""
    found: dict[Hashable, tuple[str, Row, int]] = {}
    for row in rows:
        name = re.sub(r"(?<=\.)\d+(?=\.)", "*", row.name)
        alike = (name, key(row) if callable(key) else None)
        before = found.get(alike)
        if before is None:
            found[alike] = (row.name, row, 1)
        else:
            found[alike] = (name, before[1], before[2] + 1)
    return list(found.values())


def _size(size: int) -> str:
    return f"{size / _MIB:,.1f} MiB" if size >= _MIB else f"{size / 1024:,.1f} KiB"


def _times(count: int) -> str:
    return "" if count == 1 else f" (and {count - 1} like it)"
