"""`python -m benchmarks.gemm_readme`: writes the table of a GPU's results into README.md, so that
every figure there has a file behind it. Measures nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from humming.errors import UsageError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200_dense_int4g128.json"
HEURISTIC = ROOT / "benchmarks" / "results" / "h200_heuristic.json"
BEGIN, END = "<!-- GPU results: begin -->", "<!-- GPU results: end -->"
_HEAD = (
    "| m | shapes | torch bf16 / humming | least | humming-kernels / humming | least | families |\n"
    "|---|---|---|---|---|---|---|\n"
)


def markdown(report: dict[str, Any], evidence: dict[str, Any]) -> str:
    """Where the figures come from, and a row for each m: geometric means over the shapes that were
    compared; then what the heuristic alone would do."""
    facts, rows = report["provenance"], report["rows"]
    shapes = ", ".join(dict.fromkeys(f"{row['n']} x {row['k']}" for row in rows))
    intro = (
        f"{facts['device']['name']}, {facts['date'][:10]}, torch {facts['torch']}, NVRTC "
        f"{facts['identity']['compiler_version']}; {report['format']}, bf16, n x k of {shapes}.\n\n"
    )
    lines = []
    for m in dict.fromkeys(row["m"] for row in rows):
        of_m = [row for row in rows if row["m"] == m]
        cells = []
        for peer in ("torch_bf16_ratio", "humming_kernels_ratio"):
            ratios = [row[peer][0] for row in of_m if peer in row]
            cells += [f"{_mean(ratios):.2f}", f"{min(ratios):.2f}"]
        cells.insert(0, str(len(of_m)))
        families = ", ".join(sorted({row["family"] for row in of_m}))
        lines.append(f"| {m} | {' | '.join(cells)} | {families} |\n")
    limits = [row["read_limit_us"] / row["us"] for row in rows if row["m"] == 1]
    unproved = sum(row["record_id"] is None for row in rows)
    outro = (
        f"\nAt m = 1 reading the weights alone takes {_mean(limits):.2f} of our time in geometric "
        f"mean. {unproved} of the {len(rows)} points, those that the time for tuning did not "
        "reach, were served by the heuristic. What its rules choose for a shape when fitted "
        f"without it takes {evidence['chosen_over_best']:.2f} times the best config measured for "
        "it, in geometric mean.\n"
    )
    return intro + _HEAD + "".join(lines) + outro


def rewritten(text: str, body: str, begin: str = BEGIN, end: str = END) -> str:
    """`text` with what stands between the markers replaced. Raises UsageError without markers."""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UsageError(f"README.md must hold '{begin}' and '{end}' once each; put them back")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{body}{end}{rest.partition(end)[2]}"


def with_results(text: str) -> str:
    """`text` with the table. Raises UsageError without markers."""
    report, evidence = (json.loads(path.read_text("utf-8")) for path in (RESULTS, HEURISTIC))
    return rewritten(text, markdown(report, evidence))


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def main() -> int:
    """Rewrites README.md; exit code 2 where it cannot."""
    readme = ROOT / "README.md"
    try:
        text = with_results(readme.read_text("utf-8"))
    except (UsageError, OSError) as error:
        print(f"benchmarks.gemm_readme: {error}", file=sys.stderr)
        return 2
    readme.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
