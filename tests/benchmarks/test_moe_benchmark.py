"""The benchmark of experts: its means, its table, and the README that holds it."""

import math

import pytest

from benchmarks import moe, moe_readme


def row(layer: str, m: int, ratio: float, format: str = "mxfp4") -> dict[str, object]:
    return {"layer": layer, "format": format, "m": m, "us": 10.0, "ratio": ratio}


def test_means_are_geometric_and_by_size():
    found = moe.summary([row("a", 1, 2.0), row("b", 64, 0.5), row("a", 256, 1.1)])
    assert math.isclose(found["m <= 64"], 1.0)
    assert math.isclose(found["m >= 256"], 1.1)
    assert found["least"] == 0.5
    assert moe.summary([]) == {}


def test_the_table_has_a_row_a_layer_and_format():
    report = {"device": {"name": "a GPU"}, "date": "2026-12-01T00:00", "torch": "2.11"}
    rows = [row("a", 1, 2.0), row("a", 16, 1.5), row("b", 1, 1.0)]
    text = moe_readme.markdown({**report, "rows": rows})
    assert "| `mxfp4` | a | 10.0 (2.00) | 10.0 (1.50) |" in text
    assert "| `mxfp4` | b | 10.0 (1.00) | - |" in text


def test_the_readme_holds_the_results():
    if not moe_readme.RESULTS.exists():
        pytest.skip("nothing was measured yet")
    text = (moe_readme.ROOT / "README.md").read_text("utf-8")
    assert moe_readme.with_results(text) == text, "run python -m benchmarks.moe_readme"
