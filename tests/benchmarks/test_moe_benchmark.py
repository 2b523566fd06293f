"""The benchmark of experts: its means, its table, and the README that holds it."""

import math

import pytest
import torch

from benchmarks import moe, moe_readme, moe_tuned
from benchmarks.moe_peer_block import aligned
from tests.gpus import gpu


def row(layer: str, m: int, ratio: float, format: str = "mxfp4") -> dict[str, object]:
    ratios = [ratio, ratio - 0.1, ratio + 0.1]
    of = {"layer": layer, "format": format, "m": m, "us": 10.0, "record_id": None}
    return {**of, "humming_kernels_ratio": ratios}


def test_means_are_geometric_and_by_size():
    found = moe.summary([row("a", 1, 2.0), row("b", 64, 0.5), row("a", 256, 1.1)])
    assert math.isclose(found["m <= 64"], 1.0)
    assert math.isclose(found["m >= 256"], 1.1)
    assert found["least"] == 0.5
    assert moe.summary([]) == {}


def test_the_table_has_a_row_a_layer_and_format():
    of = {"device": {"name": "a GPU"}, "date": "2026-12-01T00:00", "torch": "2.11"}
    rows = [row("a", 1, 2.0), row("a", 16, 1.5), row("b", 1, 1.0)]
    text = moe_readme.markdown({"provenance": of, "rows": rows})
    assert "| `mxfp4` | a | 10.0 (2.00) | 10.0 (1.50) |" in text
    assert "| `mxfp4` | b | 10.0 (1.00) | - |" in text
    assert "0 of 3 configs were tuned" in text


def test_sides_take_turns_and_long_replays_are_few():
    order = []

    def side(name, us):
        def sample():
            order.append(name)
            return us

        return sample

    found = moe.rounds({"us": side("ours", 400.0), "humming_kernels_us": side("theirs", 200.0)})
    assert order == 5 * ["ours", "ours", "theirs", "theirs", "theirs"]
    assert found["humming_kernels_ratio"] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("format", ["mxfp4", "mxfp4-fp8e4m3", "fp8e4m3b128-fp8e4m3g128"])
def test_every_point_is_a_problem_of_the_tuner(format):
    tasks = moe_tuned.tasks_of(moe.KNOWN, [format], (1, 4096), gpu((9, 0), 132, True), "uniform")
    assert len(tasks) == 2 * len(moe.KNOWN)
    assert all(task.candidates.configs for task in tasks)


@pytest.mark.parametrize(("m", "top_k", "experts", "block"), [(33, 3, 7, 64), (5, 2, 9, 1)])
def test_rows_of_the_peer_are_aligned_to_blocks(m, top_k, experts, block):
    ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(m)])
    rows, of_blocks, padded = aligned(ids, experts, block)
    blocks = rows[: int(padded)].view(-1, block)
    for expert, places in zip(of_blocks.tolist(), blocks, strict=False):
        own = places[places < ids.numel()]
        assert len(own) and bool((ids.flatten()[own] == expert).all())
    assert sorted(rows[rows < ids.numel()].tolist()) == list(range(ids.numel()))


def test_what_is_not_known_is_told(capsys):
    with pytest.raises(SystemExit):
        moe.parse_arguments(["--layers", "qwen30b_gateu"])
    assert "'qwen30b_gateu'; did you mean" in capsys.readouterr().err


def test_the_readme_holds_the_results():
    if not moe_readme.RESULTS.exists():
        pytest.skip("nothing was measured yet")
    text = (moe_readme.ROOT / "README.md").read_text("utf-8")
    assert moe_readme.with_results(text) == text, "run python -m benchmarks.moe_readme"
