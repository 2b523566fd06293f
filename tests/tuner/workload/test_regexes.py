"""Regular expressions of a config: the same answers as `re`, in bounded time. Lists of names are in
test_exclusions.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from humming.checkpoints.config.regexes import compiled
from humming.errors import ModelError
from tuner.workload import read_workload

NAMES = (
    "model.layers.0.self_attn.q_proj",
    "model.layers.12.mlp.gate_proj",
    "language_model.model.layers.3.mlp.experts.0.w1",
    "aab",
    "ab.ab",
    "",
)
ATOMS = st.sampled_from(
    ["a", "b", ".", r"\.", "[ab]", "[^a]", r"\d", r"\w", "self_attn", "layers", "^", "$", r"\b"]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(inner, st.sampled_from(["{2}", "{1,3}", "{0,2}?", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda one: f".*{one}.*"),
        inner.map(lambda one: f"(?!{one})"),
        inner.map(lambda one: f"(?={one})"),
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.one_of(st.sampled_from(NAMES), st.text("ab.1_", max_size=8)))
def test_answers_are_those_of_re(pattern: str, text: str) -> None:
    assert compiled(pattern).match(text) == (re.match(pattern, text) is not None)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        ".*.*.*.*.*.*.*.*x",
        "(.*)*x",
        "(a?){40}a{40}",
        "(a*)*(a*)*b",
    ],
)
def test_patterns_that_would_take_for_ever_do_not(
    write_model: Callable[..., Path], tiny_llama: dict[str, Any], pattern: str
) -> None:
    assert not compiled(f"{pattern}!").match("a" * 60)
    dynamic = {f"-:{pattern}": {}, f"-:.*{pattern}": {}}
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    assert read_workload(write_model({**tiny_llama, "quantization_config": gptq}))


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "is no regular expression"),
        (r"(a)\1", "refers to a group"),
        ("(?<=a)b", "looks behind"),
        ("a" * 1001, "is longer than 1000 characters"),
        ("(" * 30 + "a?" + ")" * 30, "nests too deeply"),
    ],
)
def test_patterns_that_are_refused(
    write_model: Callable[..., Path], tiny_llama: dict[str, Any], pattern: str, reason: str
) -> None:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {pattern: {}}}
    with pytest.raises(ModelError, match="made of valid regular expressions") as caught:
        read_workload(write_model({**tiny_llama, "quantization_config": gptq}))
    assert reason in str(caught.value)


def test_too_many_patterns_are_refused(
    write_model: Callable[..., Path], tiny_llama: dict[str, Any]
) -> None:
    listed = [f"re:(?:x|{i})+y(?:z|{i})+" for i in range(3000)]
    fp8 = {"quant_method": "fp8", "ignored_layers": listed}
    config = {**tiny_llama, "num_hidden_layers": 100, "quantization_config": fp8}
    with pytest.raises(ModelError, match="fewer or simpler patterns"):
        read_workload(write_model(config))
