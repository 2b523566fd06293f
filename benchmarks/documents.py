"""`python -m benchmarks.documents`: writes the tables of docs/formats.md and docs/support.md anew,
from the code and from files in benchmarks/results. Measures nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.support import combinations_table, families_table, readers_table
from humming.errors import UsageError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "quantization_error.json"
PACKING = ROOT / "benchmarks" / "results" / "packing.json"


def errors_table() -> str:
    """The error of each format on each weight, by absmax and by searched clipping."""
    report = json.loads(RESULTS.read_text())
    kinds = list(next(iter(report["errors"].values())))
    lines = [["format", *kinds], ["---"] * (len(kinds) + 1)]
    for name, errors in report["errors"].items():
        cells = (
            f"{_percent(errors[kind]['absmax'])} / {_percent(errors[kind]['mse'])}"
            for kind in kinds
        )
        lines.append([f"`{name}`", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def peers_table() -> str:
    """Our error by searched clipping over that of other libraries' searches."""
    report = json.loads(RESULTS.read_text())
    kinds = list(next(iter(report["errors"].values())))
    lines = [["search", "format", *kinds], ["---"] * (len(kinds) + 2)]
    for library, peer in report["peers"].items():
        for name, errors in peer["errors"].items():
            ours: dict[str, Any] = report["errors"][name]
            cells = (f"{ours[kind]['mse'] / errors[kind]:.3f}" for kind in kinds)
            lines.append([f"{library} {peer['version']}", f"`{name}`", *cells])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def packing_table() -> str:
    """Seconds of processor time that each format takes to quantize, pack and unpack."""
    report = json.loads(PACKING.read_text())
    done = list(next(iter(report["seconds"].values())))
    lines = [["format", *done], ["---"] * (len(done) + 1)]
    for name, seconds in report["seconds"].items():
        lines.append([f"`{name}`", *(f"{seconds[what]:.2f}" for what in done)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "docs/formats.md": {"errors": errors_table, "peers": peers_table, "packing": packing_table},
    "docs/support.md": {
        "families": families_table,
        "readers": readers_table,
        "combinations": combinations_table,
    },
}
"""Document -> the name between its markers -> what stands there."""


def rewritten(document: str) -> str:
    """The text of `document` with its tables made anew. Raises UsageError without markers."""
    text = (ROOT / document).read_text("utf-8")
    for name, table in PARTS[document].items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise UsageError(
                f"{document} must hold '{begin.strip()}' and '{end}' once each; put them back"
            )
        head, _, rest = text.partition(begin)
        text = head + begin + table() + end + rest.partition(end)[2]
    return text


def _percent(error: float) -> str:
    return f"{100 * error:.3g}"


def main() -> None:
    """Writes the documents."""
    for document in PARTS:
        (ROOT / document).write_text(rewritten(document), "utf-8")


if __name__ == "__main__":
    main()
