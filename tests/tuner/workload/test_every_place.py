"""Every place of every public config, once with each kind of wrong value: missing, null, of another
type, negative, huge, a string, a list. The answer is a Workload or one sentence, never a traceback.

Random changes, several at a time, are test_config_fuzz.py.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.tuner.workload.test_config_fuzz import FILES, assert_whole, paths, planned

MISSING = object()
WRONG: tuple[Any, ...] = (
    *(MISSING, None, True, 0, 1, -1, -(2**31), 2**24 + 1, 2**31, 2**63, 10**400),
    *(0.5, -1.5, 1e308, float("nan"), float("inf"), "", "x", "8", "re:(", "é\0\n"),
    *([], [None], [0, -1], ["x"], [[]], {}, {"": None}, {"x": {"y": []}}),
)


def renamed(name: str) -> dict[str, Any]:
    """A public config whose quantization stands under its older key."""
    config = copy.deepcopy(FILES[name])
    config["compression_config"] = config.pop("quantization_config")
    return config


QUANTIZED = next(name for name in FILES if "compressed" in json.dumps(FILES[name]))
CONFIGS = {**FILES, "under its older key": renamed(QUANTIZED)}


def changed(config: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    inner: Any = config
    for key in place[:-1]:
        inner = inner[key]
    if value is MISSING:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    return config


def by_place() -> dict[tuple[Any, ...], str]:
    """Each distinct place, and the smallest config that has it."""
    found: dict[tuple[Any, ...], str] = {}
    for name in sorted(CONFIGS, key=lambda name: len(json.dumps(CONFIGS[name]))):
        for place in paths(CONFIGS[name]):
            found.setdefault(place, name)
    return found


def answer(name: str, place: tuple[Any, ...], value: Any, tp: int) -> None:
    try:
        content = json.dumps(changed(CONFIGS[name], place, value)).encode()
        workload = planned(content, tp, None)
        if workload is not None:
            assert_whole(workload, tp)
    except Exception as error:
        raise AssertionError(f"{name} with {place} = {value!r:.60}, tp={tp}") from error


PLACES = by_place()
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
def test_each_place_with_a_wrong_value(share: int) -> None:
    """Each place with one of the values, another one at the next place."""
    for number, (place, name) in enumerate(PLACES.items()):
        if number % SHARES == share:
            answer(name, place, WRONG[number // SHARES % len(WRONG)], (1, 8)[number % 2])


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_every_place_of_every_file_with_every_wrong_value(name: str) -> None:
    for place in paths(CONFIGS[name]):
        for value in WRONG:
            answer(name, place, value, 1)


def test_all_keys_and_nested_places_are_reached() -> None:
    keys = {place[0] for place in PLACES}
    assert len(keys) > 200
    for nested in ("text_config", "quantization_config", "compression_config", "rope_scaling"):
        assert any(place[0] == nested and len(place) > 1 for place in PLACES), nested
