"""`python -m benchmarks.causal_lm_readme`: writes the figures of a whole model on a GPU into
README.md. Measures nothing."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from humming.errors import UsageError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "h200_causal_lm.json"
BEGIN, END = "<!-- model results: begin -->", "<!-- model results: end -->"
SIDES = ("torch", "humming", "humming-kernels")


def markdown(report: dict[str, Any]) -> str:
    """Where the figures come from, and a row for each of them: medians, and how many times ours
    another side takes, with its interval."""
    facts, model = report["provenance"], report["model"]
    intro = (
        f"{facts['device']['name']}, {facts['date'][:10]}, torch {facts['torch']}; "
        f"{model['num_hidden_layers']} layers of {model['hidden_size']}, {report['format']}, "
        "random weights, a batch of one, norms by torch's fused kernel on all sides.\n\n"
        "| | humming | torch bf16 | / humming | humming-kernels | / humming |\n"
        "|---|---|---|---|---|---|\n"
    )
    rows = [_row("a token in CUDA graphs, ms", report["decode_us"], 1e-3)]
    rows += [_row(f"first token of {report['prompt']}, ms", report["prefill_ms"], 1.0)]
    for point in report["host_us"]:
        n, k, m = point["point"]
        rows.append(_row(f"host time of a call, {n} x {k}, m = {m}, µs", point, 1.0))
    gib = {kind: made["bytes"] / 2**30 for kind, made in report["made"].items()}
    rows.append(
        f"| memory, GiB | {gib['humming']:.2f} | {gib['torch']:.2f} | | "
        f"{gib['humming-kernels']:.2f} | |\n"
    )
    per_second = " against ".join(
        f"{1e6 / statistics.median(report['decode_us']['samples'][kind]):.0f} ({kind})"
        for kind in ("humming", "torch", "humming-kernels")
    )
    errors = report["logit_error"]
    graphs = ", ".join(
        f"{row['layer_us'] / row['bare_us']:.3f} at m = {row['point'][2]}"
        for row in report["graph_us"]
    )
    outro = (
        f"\nThat is tokens per second: {per_second}. In CUDA graphs a layer takes, in times of its "
        f"bare kernel, {graphs}. Logits of a given text differ from fp32 on the dequantized "
        f"weights by {errors['humming']:.2e} of their norm, and by {errors['torch']:.2e} with "
        "torch's bf16 layers.\n"
    )
    return intro + "".join(rows) + outro


def _row(name: str, point: dict[str, Any], scale: float) -> str:
    ratios = {}
    for kind in ("torch", "humming-kernels"):
        ratio, low, high = point[f"{kind} / humming"]
        ratios[kind] = f"{ratio:.2f} ({low:.2f} .. {high:.2f})"
    us = {kind: f"{point[kind] * scale:.2f}" for kind in SIDES}
    return (
        f"| {name} | {us['humming']} | {us['torch']} | {ratios['torch']} | "
        f"{us['humming-kernels']} | {ratios['humming-kernels']} |\n"
    )


def with_results(text: str) -> str:
    """README's `text` with the results in it. Raises UsageError where it has no place for them."""
    if BEGIN not in text or END not in text:
        raise UsageError(f"README.md must hold '{BEGIN}' and '{END}'; add them where they belong")
    report = json.loads(RESULTS.read_text("utf-8"))
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{markdown(report)}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrites README.md."""
    readme = ROOT / "README.md"
    readme.write_text(with_results(readme.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
