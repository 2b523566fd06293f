"""The searcher that tunes is the one that replays of recorded sweeps chose."""

import json
from pathlib import Path

from benchmarks.replay import read_sweep, recorded, replay
from humming.spec.config import config_id
from tuner.searching.surrogate import Surrogate

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_table_decided_for_what_search_uses():
    table = json.loads((RESULTS / "searchers.json").read_text())
    assert table["decided"] == Surrogate.__name__.lower()
    for sweep in table["sweeps"]:
        means = {name: found["mean_to_goal"] for name, found in sweep["searchers"].items()}
        assert min(means, key=lambda name: means[name]) == table["decided"]
        assert (RESULTS / sweep["sweep"]).is_file()


def test_a_replay_reaches_the_goal_and_stops_near_the_best():
    sweep = read_sweep(RESULTS / "sweep_cpu_int4g128_1024.json")
    found = replay(sweep, 1, "surrogate", Surrogate({k: sweep.configs[k] for k in sweep.us[1]}))
    assert found.to_goal <= found.candidates == 73
    assert found.stopped <= found.candidates and found.regret <= 0.03


def test_recorded_configs_keep_their_knobs_and_differ():
    one, other = recorded({"family": "x", "a": 1}), recorded({"family": "x", "a": 2})
    assert (one.family, one.a, one.block_m) == ("x", 1, 1)
    assert config_id(one) != config_id(other)
    assert one == recorded({"family": "x", "a": 1})
