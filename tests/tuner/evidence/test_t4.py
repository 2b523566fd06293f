"""The T4 export by what its schema says; by Kernel Tuner and its tools where they are installed."""

import json
from dataclasses import replace

import pytest

from humming.dispatch.heuristics import heuristic
from humming.jit.identity import here, serving_device
from humming.spec.problem import Problem
from tests.tuner.test_cli import call  # noqa: F401  (fixture)
from tuner.store.open import open_store
from tuner.store.records import OUTCOMES, MeasurementDraft

LAYER = Problem("int4g128", n=64, k=256, m=4)
INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}
TIMES = {"compilation_time", "framework", "search_algorithm", "validation"}


@pytest.fixture
def folder(call, tmp_path):  # noqa: F811
    """An export of a trial of each outcome, of torch's time, and of another problem."""
    identity, config = here(serving_device()), heuristic(LAYER, serving_device())
    with open_store(str(tmp_path / "tuning.db")) as store:
        for number, outcome in enumerate(OUTCOMES):
            timed = {"us": 5.5, "samples": (5.5, 6.5)} if outcome == "ok" else {}
            tried = replace(config, prefetch_bytes=64 * number)
            draft = MeasurementDraft(
                identity=identity, problem=LAYER, config=tried, outcome=outcome, **timed
            )
            store.finish(None, draft)
        for kind, tried in (("candidate", config), ("torch", None)):
            draft = MeasurementDraft(
                identity=identity,
                problem=LAYER.at(16),
                config=tried,
                outcome="ok",
                us=9.0,
                samples=(9.0,),
                kind=kind,
                compile_s=0.25,
            )
            store.finish(None, draft)
    code, out, err = call("export", "--t4", "--out", tmp_path / "t4", "--json")
    assert (code, json.loads(out)["files"], json.loads(out)["results"]) == (0, 2, 8), err
    return tmp_path / "t4"


def results_of(folder):
    paths = sorted(path for path in folder.glob("*.json") if path.name != "metadata.json")
    return {path.stem: json.loads(path.read_text()) for path in paths}


def test_every_search_is_a_file_as_the_schema_says(folder):
    searches = results_of(folder)
    assert [len(search["results"]) for search in searches.values()] == [1, 7]
    for search in searches.values():
        assert search["schema_version"] == "1.0.0"
        for result in search["results"]:
            assert result.keys() >= {"configuration", "times", "invalidity", "correctness"}
            assert type(result["configuration"]) is dict and type(result["timestamp"]) is str
            assert result["invalidity"] in INVALIDITY
            assert all(type(result["times"][name]) is float for name in TIMES)
            assert type(result["times"]["runtimes"]) is list and result["objectives"] == ["time"]
            for one in result["measurements"]:
                assert type(one["name"]) is type(one["unit"]) is str
                assert type(one["value"]) in (float, str)


def test_outcomes_and_units(folder):
    one, seven = results_of(folder).values()
    assert {result["invalidity"] for result in seven["results"]} == INVALIDITY
    (good,) = (result for result in seven["results"] if result["invalidity"] == "correct")
    assert good["measurements"] == [{"name": "time", "value": 0.0055, "unit": "ms"}]
    assert good["times"]["runtimes"] == [0.0055, 0.0065]
    (only,) = one["results"]
    assert only["times"]["compilation_time"] == 250.0
    wrong = [r["correctness"] for r in seven["results"] if r["invalidity"] == "correctness"]
    assert wrong == [0]


def test_the_metadata_names_each_search(folder):
    metadata = json.loads((folder / "metadata.json").read_text())
    searches = metadata["metadata"]["searches"]
    assert searches.keys() == results_of(folder).keys()
    assert {search["problem"]["m"] for search in searches.values()} == {4, 16}
    assert metadata["metadata"]["hardware"]["hardware_description"] == [serving_device().name]


def test_kernel_tuners_own_schema_and_tools_read_it(folder):
    jsonschema = pytest.importorskip("jsonschema")
    schema_of = pytest.importorskip("kernel_tuner.file_utils").output_file_schema
    tools = pytest.importorskip("autotuning_methodology.searchspace_statistics")
    metadata = json.loads((folder / "metadata.json").read_text())
    jsonschema.validate(metadata, schema_of("metadata")[1])
    for name, search in results_of(folder).items():
        jsonschema.validate(search, schema_of("results")[1])
        keys = (["compilation", "runtimes"], ["time"])
        path = folder / f"{name}.json"
        read = tools.SearchspaceStatistics("gemm", "cpu", True, *keys, path)
        assert read.size == len(search["results"])
        assert read.total_performance_absolute_optimum() in (0.0055, 0.009)
