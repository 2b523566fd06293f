"""`python -m benchmarks.gemm_readme`: writes the tables of a GPU's results into README.md, so that
every figure there has a file behind it. Measures nothing."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from humming.errors import UsageError
from humming.spec.sources import WHOLE, parts_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200_dense_int4g128.json"
TUNED = ROOT / "benchmarks" / "results" / "h200_tuned_int4g128.json"
HEURISTIC = ROOT / "benchmarks" / "results" / "h200_heuristic.json"
BEGIN, END = "<!-- GPU results: begin -->", "<!-- GPU results: end -->"
TUNED_BEGIN, TUNED_END = "<!-- GPU tuned: begin -->", "<!-- GPU tuned: end -->"
_HEAD = (
    "| m | torch bf16 / humming | least | humming-kernels / humming | least | families |\n"
    "|---|---|---|---|---|---|\n"
)


def markdown(report: dict[str, Any]) -> str:
    """Where the figures come from, and a row for each m: geometric means over the shapes."""
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
            ratios = [row[peer][0] for row in of_m]
            cells += [f"{_mean(ratios):.2f}", f"{min(ratios):.2f}"]
        families = ", ".join(sorted({row["family"] for row in of_m}))
        lines.append(f"| {m} | {' | '.join(cells)} | {families} |\n")
    limits = [row["read_limit_us"] / row["us"] for row in rows if row["m"] == 1]
    unproved = sum(row["record_id"] is None for row in rows)
    outro = (
        f"\nAt m = 1 reading the weights alone takes {_mean(limits):.2f} of our time in geometric "
        f"mean. {unproved} of the {len(rows)} points, those that the time for tuning did not "
        "reach, were served by the heuristic.\n"
    )
    return intro + _HEAD + "".join(lines) + outro


def tuned_markdown(report: dict[str, Any], evidence: dict[str, Any]) -> str:
    """What the tuner itself saw: geometric means over the shapes that it reached, for each m."""
    lines = []
    for m in sorted({row["m"] for row in report["rows"]}):
        of_m = [row for row in report["rows"] if row["m"] == m]
        torchs = [row["torch_bf16_us"] / row["us"] for row in of_m]
        defaults = [row["heuristic_us"] / row["us"] for row in of_m]
        families = ", ".join(sorted({row["family"] for row in of_m}))
        lines.append(
            f"| {m} | {len(of_m)} | {_mean(torchs):.2f} | {min(torchs):.2f} | "
            f"{_mean(defaults):.2f} | {families} |\n"
        )
    facts = report["provenance"]
    sources = parts_of(facts["identity"]["source_hash"])[WHOLE]
    return (
        f"{facts['device']['name']}, {facts['date'][:10]}, kernel sources "
        f"{sources[:12]}; {len(report['rows'])} points.\n\n"
        "| m | shapes | torch bf16 / humming | least | heuristic / humming | families |\n"
        f"|---|---|---|---|---|---|\n{''.join(lines)}\n"
        "What the heuristic's rules choose for a shape when fitted without it takes "
        f"{evidence['chosen_over_best']:.2f} times the best config measured for it, in geometric "
        "mean.\n"
    )


def rewritten(text: str, body: str, begin: str = BEGIN, end: str = END) -> str:
    """`text` with what stands between the markers replaced. Raises UsageError without markers."""
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UsageError(f"README.md must hold '{begin}' and '{end}' once each; put them back")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{body}{end}{rest.partition(end)[2]}"


def with_results(text: str) -> str:
    """`text` with both tables. Raises UsageError without markers."""
    text = rewritten(text, markdown(json.loads(RESULTS.read_text("utf-8"))))
    tuned = json.loads(TUNED.read_text("utf-8"))
    evidence = json.loads(HEURISTIC.read_text("utf-8"))
    return rewritten(text, tuned_markdown(tuned, evidence), TUNED_BEGIN, TUNED_END)


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
