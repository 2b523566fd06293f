"""Plans of public models against answers worked out by hand or taken from serving engines. Dialects
are in test_dialects.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import read_workload, to_json

DATA = Path(__file__).parent.parent / "data"
ANSWERS = sorted((DATA / "answers").glob("*.json"))
FIELDS = ("op", "n", "k", "count", "experts", "top_k", "format", "layers")

Row = tuple[object, ...]
ATTENTION_MLP = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj")

# (config, tp) -> (n, k) of qkv, o, gate_up, down; and the number of layers.
DENSE = {
    ("Qwen__Qwen3-0.6B", 1): ([(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)], 28),
    ("Qwen__Qwen3-0.6B", 8): ([(512, 1024), (1024, 256), (768, 1024), (1024, 384)], 28),
    ("Qwen__Qwen3-8B", 1): ([(6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288)], 36),
    ("Qwen__Qwen3-8B", 8): ([(768, 4096), (4096, 512), (3072, 4096), (4096, 1536)], 36),
    ("meta-llama__Meta-Llama-3.1-8B", 1): (
        [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)],
        32,
    ),
    ("meta-llama__Meta-Llama-3.1-8B", 8): (
        [(768, 4096), (4096, 512), (3584, 4096), (4096, 1792)],
        32,
    ),
    ("mistralai__Mistral-7B", 1): (
        [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)],
        32,
    ),
    ("microsoft__phi-4", 2): ([(3840, 5120), (5120, 2560), (17920, 5120), (5120, 8960)], 40),
}


def _rows(rows: list[dict[str, Any]]) -> list[Row]:
    return [tuple(json.dumps(row[field]) for field in FIELDS) for row in rows]


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda path: path.stem)
@pytest.mark.parametrize("tp", ["1", "8"])
def test_equals_the_answer(answer: Path, tp: str) -> None:
    expected = json.loads(answer.read_text())
    plan = to_json(read_workload(DATA / expected["config"], int(tp)))
    assert plan["tp"] == int(tp)
    for part in ("problems", "unquantized"):
        assert _rows(plan[part]) == _rows(expected["tp"][tp][part])


def test_answers_are_there() -> None:
    assert len(ANSWERS) >= 4


@pytest.mark.parametrize(("start", "tp"), DENSE)
def test_dense_models_leave_all_layers_in_bf16(
    public_config: Callable[[str], Path], start: str, tp: int
) -> None:
    shapes, layers = DENSE[start, tp]
    workload = read_workload(public_config(start), tp)
    assert workload.problems == ()
    assert workload.dtype == "bf16"
    assert [(g.n, g.k) for g in workload.unquantized] == shapes
    assert [g.layers for g in workload.unquantized] == [(name,) for name in ATTENTION_MLP]
    assert {(g.op, g.count, g.experts, g.top_k, g.format) for g in workload.unquantized} == {
        ("dense", layers, None, None, "bf16")
    }
    assert workload.warnings == ()


@pytest.mark.parametrize(("start", "tp"), DENSE)
def test_a_format_turns_dense_layers_into_problems(
    public_config: Callable[[str], Path], start: str, tp: int
) -> None:
    shapes, layers = DENSE[start, tp]
    workload = read_workload(public_config(start), tp, "int4g128")
    assert workload.unquantized == ()
    assert [(g.n, g.k, g.count, g.format) for g in workload.problems] == [
        (n, k, layers, "int4g128") for n, k in shapes
    ]
    assert workload.warnings == ()


MOE = {
    1: [(5120, 2048), (2048, 4096), (128, 2048), (1536, 2048), (2048, 768)],
    8: [(768, 2048), (2048, 512), (128, 2048), (192, 2048), (2048, 96)],
}
MOE_LAYERS = (
    "self_attn.qkv_proj",
    "self_attn.o_proj",
    "mlp.gate",
    "mlp.experts.w13",
    "mlp.experts.w2",
)


@pytest.mark.parametrize("tp", [1, 8])
def test_qwen3_30b_a3b(public_config: Callable[[str], Path], tp: int) -> None:
    workload = read_workload(public_config("Qwen__Qwen3-30B-A3B"), tp)
    assert workload.problems == ()
    assert [(g.n, g.k) for g in workload.unquantized] == MOE[tp]
    assert [g.layers for g in workload.unquantized] == [(name,) for name in MOE_LAYERS]
    assert [(g.op, g.experts, g.top_k) for g in workload.unquantized] == (
        [("dense", None, None)] * 3 + [("moe", 128, 8)] * 2
    )
    assert {g.count for g in workload.unquantized} == {48}


@pytest.mark.parametrize("tp", [1, 8])
def test_qwen3_30b_a3b_with_a_format_keeps_the_router(
    public_config: Callable[[str], Path], tp: int
) -> None:
    workload = read_workload(public_config("Qwen__Qwen3-30B-A3B"), tp, "int4g128")
    without_router = [shape for shape in MOE[tp] if shape != (128, 2048)]
    assert [(g.n, g.k) for g in workload.problems] == without_router
    assert [(g.layers, g.format) for g in workload.unquantized] == [(("mlp.gate",), "bf16")]
    assert len(workload.warnings) == (1 if tp == 8 else 0)
    if tp == 8:
        assert "mlp.experts.w2: k=96 is 0.75 groups of 128 (int4g128)" in workload.warnings[0]


def test_blocks_and_groups_that_ranks_do_not_fill_are_named(
    public_config: Callable[[str], Path],
) -> None:
    fp8 = read_workload(public_config("Qwen__Qwen3-30B-A3B-FP8"), 8).warnings
    assert len(fp8) == 2
    assert fp8[0].startswith("mlp.experts.w13: a part of n=96 is 0.75 blocks of 128")
    assert fp8[1].startswith("mlp.experts.w2: k=96 is 0.75 blocks of 128")
    gptq = read_workload(public_config("TheBloke__Llama-2-13B"), 8).warnings
    assert len(gptq) == 1
    assert gptq[0].startswith("mlp.down_proj: k=1728 is 13.5 groups of 128 (int4g128)")


@pytest.mark.parametrize(
    ("start", "tp", "rule"),
    [
        ("TheBloke__Wizard-Vicuna-30B", 8, "`num_attention_heads % tp == 0` must hold"),
        ("microsoft__phi-4", 8, "`num_key_value_heads % tp == 0` must hold"),
        ("Qwen__Qwen3-8B", 3, "`num_attention_heads % tp == 0` must hold"),
    ],
)
def test_a_tp_that_does_not_divide_the_heads_is_refused(
    public_config: Callable[[str], Path], start: str, tp: int, rule: str
) -> None:
    with pytest.raises(ModelError, match="must hold") as caught:
        read_workload(public_config(start), tp)
    assert rule in str(caught.value)
    assert f"tp={tp}" in str(caught.value)


@pytest.mark.parametrize(("tp", "n"), [(4, (8 * 128) + 2 * 128), (8, 768), (16, 512), (32, 384)])
def test_few_key_value_heads_are_replicated(
    public_config: Callable[[str], Path], tp: int, n: int
) -> None:
    workload = read_workload(public_config("Qwen__Qwen3-30B-A3B"), tp)
    assert workload.unquantized[0].n == n


def test_the_example_model_is_the_small_qwen3_in_int4g128(
    public_config: Callable[[str], Path],
) -> None:
    folder = Path(__file__).parents[3] / "examples" / "models" / "qwen3-0.6b-int4g128"
    example = read_workload(folder)
    assert example.model == "qwen3-0.6b-int4g128"
    assert (
        example.problems == read_workload(public_config("Qwen__Qwen3-0.6B"), 1, "int4g128").problems
    )
    assert example.unquantized == example.warnings == ()
