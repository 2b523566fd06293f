"""`humming-tune best`: what serves one shape, and whose config it is, as the runtime would say."""

import json
from dataclasses import replace

import pytest

from humming.dispatch.heuristics import heuristic
from humming.jit.identity import here, serving_device
from humming.settings import tables_dir
from humming.spec.config import config_id, config_to_dict
from humming.spec.problem import Problem
from search_spaces.load import load_spaces
from tests.tuner.test_cli import call  # noqa: F401
from tuner.searching.candidates import legal_candidates
from tuner.store.open import open_store
from tuner.store.tables import publish

LAYER = Problem("int4g128", 64, 256, 1)
SHAPES = ((64, 256), (96, 256), (128, 256), (64, 512))


@pytest.fixture
def winner(tmp_path, monkeypatch):
    """The config that won on SHAPES at m = 1 and 2, at four fifths of the heuristic's time."""
    monkeypatch.setenv("HUMMING_DB", str(tmp_path / "tuning.db"))
    device = serving_device()
    defaults = {heuristic(replace(LAYER, n=n, k=k), device) for n, k in SHAPES}
    offered = legal_candidates(LAYER, device, load_spaces()).configs
    config = next(offered[key] for key in sorted(offered) if offered[key] not in defaults)
    with open_store(str(tmp_path / "tuning.db")) as store:
        for n, k in SHAPES:
            for m in (1, 2):
                problem = replace(LAYER, n=n, k=k, m=m)
                default = config_id(heuristic(problem, device))
                took = {"heuristic": default, "ratios": {default: 1.0, config_id(config): 0.8}}
                evidence = {"serves": [m - m % 2, m + 1], "neighbours": took}
                store.promote(
                    here(device), problem, config, us=8.0, heuristic_us=10.0, evidence=evidence
                )
        publish(store, tables_dir())
    return config


def asked(call, n, *words):  # noqa: F811
    given = ("--format", "int4g128", "--n", str(n), "--k", "256", "--device", "cpu", "--m", "1")
    code, out, err = call("best", *given, *words)
    assert code == 0, err
    return out


def test_best_says_what_was_measured_what_was_taken_and_what_to_expect(call, winner):  # noqa: F811
    (tuned,) = json.loads(asked(call, 96, "--json"))["problems"]
    assert (tuned["source"], tuned["us"], tuned["heuristic_us"]) == ("tuned", 8.0, 10.0)
    assert tuned["config"] == config_to_dict(winner) and tuned["transfer"] is None
    assert "8.0 µs at m=1, 1.25 x as fast as the heuristic" in asked(call, 96)
    (taken,) = json.loads(asked(call, 112, "--json"))["problems"]
    assert (taken["source"], taken["us"]) == ("transfer", None)
    assert taken["config"] == config_to_dict(winner)
    assert taken["transfer"] == {
        "from": {"format": "int4g128", "n": 128, "k": 256, "m": 1},
        "ratio": {"median": 0.8, "low": 0.8, "high": 0.8},
        "regret": {"median": 0.0, "low": 0.0, "high": 0.0},
        "problems": 8,
        "layers": 4,
    }
    assert "transfer from int4g128 n=128 k=256 m=1; expected 0.80 x" in asked(call, 112)


def test_best_without_evidence_says_heuristic(call):  # noqa: F811
    assert "heuristic: nothing was measured for it" in asked(call, 112)


@pytest.mark.parametrize("words", [(), ("--n", "64", "--k", "256"), ("--format", "int4g128")])
def test_best_asks_for_a_whole_shape(call, words):  # noqa: F811
    code, _, err = call("best", *words)
    assert code == 2 and "best takes a shape" in err
