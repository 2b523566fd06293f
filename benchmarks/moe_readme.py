"""`python -m benchmarks.moe_readme`: writes the table of experts' results into README.md, so that
every figure there has a file behind it. Measures nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.moe import by_format
from humming.errors import UsageError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200_moe.json"
BEGIN, END = "<!-- experts: begin -->", "<!-- experts: end -->"


def markdown(report: dict[str, Any]) -> str:
    """Where the figures come from, and a row for each format and layer: our microseconds, and how
    many times as long the peer takes."""
    rows, of = report["rows"], report["provenance"]
    m_values = list(dict.fromkeys(row["m"] for row in rows))
    head = "| format | layer | " + " | ".join(f"m = {m}" for m in m_values) + " |\n"
    head += "|" + "---|" * (len(m_values) + 2) + "\n"
    lines = []
    for format in dict.fromkeys(row["format"] for row in rows):
        for layer in dict.fromkeys(row["layer"] for row in rows if row["format"] == format):
            found = {r["m"]: r for r in rows if (r["format"], r["layer"]) == (format, layer)}
            cells = " | ".join(_cell(found.get(m)) for m in m_values)
            lines.append(f"| `{format}` | {layer} | {cells} |\n")
    means = []
    for format, of_format in by_format(rows).items():
        told = ", ".join(f"{name} {value:.2f}" for name, value in of_format.items())
        means.append(f"`{format}`: {told}")
    tuned = sum(row["record_id"] is not None for row in rows)
    intro = (
        f"{of['device']['name']}, {of['date'][:10]}, torch {of['torch']}; µs, and how many times "
        f"as long humming-kernels takes. {tuned} of {len(rows)} configs were tuned, the others "
        "are the heuristic's.\n\n"
    )
    return intro + head + "".join(lines) + f"\nIn geometric mean: {'; '.join(means)}.\n"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    ratio = row.get("humming_kernels_ratio")
    return f"{row['us']:.1f}" + (f" ({ratio[0]:.2f})" if ratio else "")


def with_results(text: str) -> str:
    """README's text with the table of the results file between the marks."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise UsageError(f"README.md must hold {BEGIN} and {END} once each, but does not")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = markdown(json.loads(RESULTS.read_text()))
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main() -> None:
    """Rewrites README.md in place."""
    readme = ROOT / "README.md"
    readme.write_text(with_results(readme.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"wrote the table of {RESULTS.name}\n")


if __name__ == "__main__":
    main()
