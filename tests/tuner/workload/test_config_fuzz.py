"""Laws over arbitrary configs: a Workload or one ModelError sentence, and workloads that are whole.
Wording is in test_bad_configs.py.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from humming.errors import ModelError
from humming.spec.formats import QuantFormat
from tuner.workload import Workload, read_workload, to_json

DATA = Path(__file__).parent.parent / "data" / "configs"
SIDE_FILES = ("quantize_config", "quantization_config", "hf_quant_config")
LISTED = 12
"""As many names of a quantization's lists are kept: enough to be changed, and quickly matched."""


def shortened(value: Any) -> Any:
    """A quantization without most of the names that it lists."""
    if isinstance(value, dict):
        items = list(value.items())
        kept = items[:LISTED] if len(items) > 40 else items
        return {key: shortened(inner) for key, inner in kept}
    return [shortened(inner) for inner in value[:LISTED]] if isinstance(value, list) else value


def read(file: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(file.read_text())
    found = config.get("quantization_config")
    return {**config, "quantization_config": shortened(found)} if found else config


FILES = {
    file.stem: read(file)
    for file in sorted(DATA.glob("*.json"))
    if file.name.split(".")[-2] not in SIDE_FILES
}
CONFIGS = list(FILES.values())
KEYS = st.sampled_from(
    sorted({key for config in CONFIGS for key in config if key != "quantization_config"})
)
NUMBERS = st.one_of(
    st.integers(-4, 300),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, 2**24, 2**31, 10**400, 128.0, float("nan"), float("inf")]),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8), st.just("re:("))
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a config, as the keys that lead there; of long lists the first two items."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for key, inner in items if isinstance(value, (dict, list)) else ():
        yield from paths(inner, (*path, key)) if isinstance(inner, (dict, list)) else [(*path, key)]


@st.composite
def mutated(draw: st.DrawFn, original: dict[str, Any] | None = None) -> Any:
    """A public config with up to three places changed, removed, or filled from another key."""
    config = copy.deepcopy(original or draw(st.sampled_from(CONFIGS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(list(paths(config))))
        inner = config
        for key in place[:-1]:
            inner = inner[key]
        if draw(st.integers(0, 3)) == 0 and isinstance(inner, dict):
            del inner[place[-1]]
        else:
            inner[place[-1]] = draw(JSON)
        if not config:
            break
    return config


def planned(content: bytes, tp: int, format: str | None) -> Workload | None:
    """The workload, or None where a ModelError refuses it; anything else fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "config.json"
        file.write_bytes(content)
        try:
            return read_workload(folder, tp, format)
        except ModelError as error:
            sentence = str(error)
            assert sentence.isprintable()
            assert len(sentence) < 600
            assert str(file) in sentence
            return None


def assert_whole(workload: Workload, tp: int) -> None:
    json.dumps(to_json(workload), allow_nan=False)
    assert workload.tp == tp
    for group in (*workload.problems, *workload.unquantized):
        assert 1 <= group.n < 2**31
        assert 1 <= group.k < 2**31
        assert group.count >= 1
        assert (group.op == "moe") == (group.experts is not None) == (group.top_k is not None)
    assert all(QuantFormat.parse(group.format) for group in workload.problems)
    assert {group.format for group in workload.unquantized} <= {workload.dtype}


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=6, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.data(), st.sampled_from([1, 8]), st.sampled_from([None, "int4g128"]))
def test_every_file_with_changes_is_planned_or_refused(
    name: str, data: st.DataObject, tp: int, format: str | None
) -> None:
    config = data.draw(mutated(FILES[name]))
    workload = planned(json.dumps(config).encode(), tp, format)
    if workload is not None:
        assert_whole(workload, tp)


@settings(max_examples=80, deadline=None)
@given(mutated(), st.sampled_from([1, 2, 8]), st.sampled_from([None, "int4g128"]))
def test_a_changed_config_is_planned_or_refused(config: Any, tp: int, format: str | None) -> None:
    workload = planned(json.dumps(config).encode(), tp, format)
    if workload is not None:
        assert_whole(workload, tp)


@settings(max_examples=100, deadline=None)
@given(st.one_of(JSON, st.dictionaries(KEYS, JSON, max_size=6)))
def test_any_json_is_planned_or_refused(value: Any) -> None:
    workload = planned(json.dumps(value).encode(), 1, None)
    if workload is not None:
        assert_whole(workload, 1)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_refused(content: bytes) -> None:
    assert planned(content, 1, None) is None


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CONFIGS), st.sampled_from([2, 4, 8]))
def test_ranks_share_all_weights(config: dict[str, Any], tp: int) -> None:
    """n * k of the ranks together is the whole model's, and more only where something is
    replicated; shapes may merge into rows otherwise.
    """
    content = json.dumps(config).encode()
    whole, shard = planned(content, 1, "int4g128"), planned(content, tp, "int4g128")
    if whole is None or shard is None:
        return
    assert sum(g.count for g in shard.problems) == sum(g.count for g in whole.problems)
    assert weights(shard) * tp >= weights(whole)


def weights(workload: Workload) -> int:
    """How many weights one rank holds in quantized layers."""
    return sum(g.n * g.k * g.count * (g.experts or 1) for g in workload.problems)
