"""`python -m benchmarks.readme`: writes the table of benchmarks/results/*.json into README.md, so
that every figure there has a file behind it. Measures nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from humming.errors import UsageError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "cpu_int4g128.json"
FORMAT_RESULTS = ROOT / "benchmarks" / "results" / "cpu_formats.json"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
FORMATS_BEGIN, FORMATS_END = "<!-- formats: begin -->", "<!-- formats: end -->"
_PEERS = ("heuristic", "torch_int4pack", "torch_bf16", "torch_fp32")
_HEAD = (
    "| n x k | m | humming µs | of memory limit | heuristic | torch int4pack | torch bf16 | "
    "torch fp32 | relative error | config |\n|---|---|---|---|---|---|---|---|---|---|\n"
)

_FORMATS_HEAD = (
    "| format | m | humming µs | GB/s | torch's own | torch bf16 | heuristic | config |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def markdown(report: dict[str, Any]) -> str:
    """Where the figures come from, and one row for each shape and m."""
    return _intro(report) + _HEAD + "".join(_row(result) for result in report["results"])


def formats_markdown(report: dict[str, Any]) -> str:
    """The same with one row for each format and m. A peer that has no kernel of its own for a
    format multiplies the dequantized weight."""
    return _intro(report) + _FORMATS_HEAD + "".join(map(_format_row, report["results"]))


def _intro(report: dict[str, Any]) -> str:
    facts = report["provenance"]
    threads = "one thread" if report["threads"] == 1 else f"{report['threads']} threads"
    rate = max(result["least_bytes"] / result["limit_us"] for result in report["results"]) / 1e3
    intro = (
        f"{facts['device']['name']} ({', '.join(facts['device']['isa'])}), {threads}, "
        f"{facts['date'][:10]}, torch {facts['torch']}, {facts['identity']['compiler_version']}. "
        f"Memory is read at {rate:.1f} GB/s.\n\n"
    )
    load = max(result["load_average"] for result in report["results"])
    if load > report["threads"] + 1:
        intro += f"The machine was busy (load average {load:.1f}): the figures are provisional.\n\n"
    return intro


def _row(result: dict[str, Any]) -> str:
    ours = result["sides"]["humming"]
    peers = " | ".join(_times(result["sides"][name]["times_slower"]) for name in _PEERS)
    return (
        f"| {result['n']} x {result['k']} | {result['m']} | {ours['us']:.0f} | "
        f"{result['limit_us'] / ours['us']:.0%} | {peers} | {ours['error']['relative']:.1e} | "
        f"{result['config_text']} |\n"
    )


def _format_row(result: dict[str, Any]) -> str:
    sides = result["sides"]
    ours = sides["humming"]
    own = sides.get("torch_int4pack") or sides.get("torch_int8pack")
    peers = (own, sides["torch_bf16"], sides["heuristic"])
    cells = " | ".join(_times(side["times_slower"]) if side else "-" for side in peers)
    return (
        f"| `{result['format']}` | {result['m']} | {ours['us']:.0f} | "
        f"{result['least_bytes'] / ours['us'] / 1e3:.1f} | {cells} | {result['config_text']} |\n"
    )


def _times(ratio: dict[str, float]) -> str:
    return f"{ratio['ratio']:.2f} ({ratio['low']:.2f} .. {ratio['high']:.2f})"


def rewritten(text: str, report: dict[str, Any]) -> str:
    """`text` with what stands between the markers replaced. Raises UsageError without markers."""
    return _between(text, BEGIN, END, markdown(report))


def with_formats(text: str, report: dict[str, Any]) -> str:
    """The same for the table of formats."""
    return _between(text, FORMATS_BEGIN, FORMATS_END, formats_markdown(report))


def _between(text: str, begin: str, end: str, block: str) -> str:
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UsageError(f"README.md must hold '{begin}' and '{end}' once each; put them back")
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n{block}{end}{rest.partition(end)[2]}"


def main() -> int:
    """Rewrites README.md; exit code 2 where it cannot."""
    readme = ROOT / "README.md"
    try:
        text = rewritten(readme.read_text("utf-8"), json.loads(RESULTS.read_text("utf-8")))
        text = with_formats(text, json.loads(FORMAT_RESULTS.read_text("utf-8")))
    except (UsageError, OSError) as error:
        print(f"benchmarks.readme: {error}", file=sys.stderr)
        return 2
    readme.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
