"""The whole-model benchmark runs, here on a CPU and a tiny model; and README holds its figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import causal_lm, causal_lm_readme

SMALL: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 128,
}


@pytest.mark.slow
def test_both_sides_say_the_same_and_answer_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers", minversion="5")
    monkeypatch.setattr(causal_lm, "HOST_POINTS", ((128, 64, 1),))
    monkeypatch.setattr(causal_lm, "PROMPT", 24)
    sides = [causal_lm.SideProcess(kind, SMALL, None) for kind in ("torch", "humming")]
    try:
        report = causal_lm.run(sides, 2)
    finally:
        for side in sides:
            side.close()
    json.dumps(report)
    assert set(report["decode_us"]["samples"]) == {"torch", "humming"}
    assert report["logit_error"]["humming"] < 1.5 * report["logit_error"]["torch"]
    assert report["prefill_ms"]["torch / humming"][0] > 0


def test_the_readme_holds_the_results() -> None:
    if not causal_lm_readme.RESULTS.exists():
        pytest.skip("no results of a whole model yet")
    text = (causal_lm_readme.ROOT / "README.md").read_text("utf-8")
    assert causal_lm_readme.with_results(text) == text, "run python -m benchmarks.causal_lm_readme"
