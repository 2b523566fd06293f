"""Every public config against what a serving engine allocates, at tensor-parallel size 1. Whole
answers for some are in test_public_models.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from humming.errors import ModelError
from tuner.workload import Workload, read_workload, to_json

DATA = Path(__file__).parent.parent / "data"
ANSWERS: dict[str, Any] = json.loads((DATA / "engine_layers.json").read_text())
del ANSWERS["about"]
SHAPES_ONLY = "no format describes this quantization"
SIDE_FILES = ("quantize_config", "quantization_config", "hf_quant_config")


def counted(workload: Workload, quantized: bool) -> dict[tuple[int, ...], int]:
    """(n, k, experts or 0, quantized) -> how many layers."""
    found: dict[tuple[int, ...], int] = {}
    for groups, is_quantized in ((workload.problems, 1), (workload.unquantized, 0)):
        for group in groups:
            key = (group.n, group.k, group.experts or 0, is_quantized if quantized else 0)
            found[key] = found.get(key, 0) + group.count
    return found


def shapes_only(name: str) -> bool:
    return str(ANSWERS[name].get("note", "")).startswith(SHAPES_ONLY)


@pytest.mark.parametrize("name", ANSWERS)
def test_layers_are_those_that_an_engine_allocates(name: str) -> None:
    answer = ANSWERS[name]
    described = not shapes_only(name)
    workload = read_workload(DATA / "configs" / name, 1, None if described else "int4g128")
    expected = {(n, k, experts, q): count for n, k, count, experts, q in answer["layers"]}
    assert counted(workload, described) == expected


@pytest.mark.parametrize("name", [name for name in ANSWERS if shapes_only(name)])
def test_a_quantization_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_workload(DATA / "configs" / name)
    assert "--format" in str(caught.value)
    assert read_workload(DATA / "configs" / name, 1, "int4g128").warnings


def test_every_config_has_an_answer_or_is_a_side_file() -> None:
    files = {file.name for file in (DATA / "configs").glob("*.json")}
    side = {name for name in files if name.split(".")[-2] in SIDE_FILES}
    assert files - side == set(ANSWERS)
    for name in side:
        with pytest.raises(ModelError, match="describes only a quantization"):
            read_workload(DATA / "configs" / name)


@pytest.mark.parametrize("tp", [2, 8])
@pytest.mark.parametrize("name", ANSWERS)
def test_more_ranks_are_planned_or_the_rule_is_named(name: str, tp: int) -> None:
    path = DATA / "configs" / name
    try:
        plan = to_json(read_workload(path, tp, "int4g128"))
    except ModelError as error:
        assert "% tp == 0` must hold" in str(error)
        return
    whole = to_json(read_workload(path, 1, "int4g128"))
    count = sum(row["count"] for row in whole["problems"] + whole["unquantized"])
    assert sum(row["count"] for row in plan["problems"] + plan["unquantized"]) == count
