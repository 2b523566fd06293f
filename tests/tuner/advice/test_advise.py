"""Advice ranks what runs first, says what is predicted, and names what does not run and why."""

import json

import pytest
import torch

from humming.jit.identity import here, serving_device
from search_spaces.load import load_spaces
from tests.tuner.test_cli import call, expect_one_sentence, model  # noqa: F401  (fixtures)
from tuner.advice import accuracy, times
from tuner.advice.options import PLAIN, STORED
from tuner.planning.tasks import make_tasks
from tuner.store.open import open_store
from tuner.workload import read_workload


def test_a_16_bit_model(call, model):  # noqa: F811
    path = model(torch_dtype="bfloat16")
    code, out, err = call("advise", "--model", path, "--device", "cpu", "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    rows = {row["format"]: row for row in report["formats"]}
    assert {"int8", "int4g128", PLAIN} <= set(rows) and STORED not in rows
    assert rows["int4g128"]["runs"] and rows["int4g128"]["time_source"] == "predicted"
    assert rows[PLAIN]["runs"] and 0 < rows[PLAIN]["weight_error"] < 0.01
    assert "Gaussian" in rows["int4g128"]["error_source"]
    assert 3.3 < rows[PLAIN]["weight_gb"] / rows["int4g128"]["weight_gb"] < 4.0
    runs = [row["runs"] for row in report["formats"]]
    assert runs == sorted(runs, reverse=True)
    fast = [row["ms_per_token"] for row in report["formats"] if row["runs"]]
    assert fast == sorted(fast)
    for row in report["formats"]:
        assert bool(row["reasons"]) != row["runs"]


def test_formats_of_the_user_s_own_and_a_person_s_table(call, model):  # noqa: F811
    words = ("advise", "--model", model(), "--device", "cpu", "--format", "int4g128,int4g64")
    code, out, _ = call(*words)
    assert code == 0
    assert "int4g128" in out and "int4g64" in out and "nvfp4" not in out
    assert "predicted" in out


def test_a_quantized_model_is_compared_as_it_is_stored(call):  # noqa: F811
    words = ("advise", "--model", "examples/models/qwen3-0.6b-int4g128", "--device", "cpu")
    code, out, _ = call(*words, "--format", "int4g128", "--json")
    rows = {row["format"]: row for row in json.loads(out)["formats"]}
    assert code == 0
    assert rows[STORED]["formats"] == ["int4g128"]
    assert rows[STORED]["weight_gb"] == rows["int4g128"]["weight_gb"]
    assert "Gaussian" in rows[STORED]["error_source"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--format", "int5gg"), "int5gg"),
        (("--m", "0"), "--m"),
        (("--m", "1,16"), "one"),
        (("--tp", "3"), "heads"),
        (("--device", "tpu"), "tpu"),
    ],
)
def test_bad_input_is_one_sentence(call, model, words, says):  # noqa: F811
    expect_one_sentence(call("advise", "--model", model(), *words), says)


def test_no_model(call):  # noqa: F811
    expect_one_sentence(call("advise"), "--model")


def test_what_was_measured_is_used_and_said(call, model, tmp_path):  # noqa: F811
    path, device = model(), serving_device()
    workload = read_workload(path, 1, "int4g128")
    tasks, _ = make_tasks(workload, (1,), device, load_spaces())
    with open_store(f"sqlite:///{tmp_path}/tuning.db") as store:
        for task in tasks:
            config = task.candidates.heuristic
            store.promote(here(device), task.problem, config, us=70.0, heuristic_us=70.0)
    words = ("advise", "--model", path, "--device", "cpu", "--format", "int4g128,int4", "--json")
    report = json.loads(call(*words)[1])
    rows = {row["format"]: row for row in report["formats"]}
    row = rows["int4g128"]
    assert row["time_source"] == "measured"
    assert row["ms_per_token"] == pytest.approx(0.07 * sum(g.count for g in workload.problems))
    assert rows["int4"]["time_source"] == "predicted"
    assert report["over_limit"] > 1.0  # 70 us is slow for layers this small


def test_weights_beside_the_config_are_measured(model, tmp_path):  # noqa: F811
    safetensors = pytest.importorskip("safetensors.torch")
    w = torch.zeros(64, 128)
    w[:, ::16] = 1.0  # codes hold this exactly
    tensors = {
        "model.layers.0.mlp.up_proj.weight": w,
        "model.embed_tokens.weight": torch.ones(8, 8),
    }
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    sample = accuracy.sample_of(model())
    assert sample.source.startswith("measured on") and "up_proj" in sample.source
    assert accuracy.weight_error(sample, "int4g128").relative == pytest.approx(0.0, abs=1e-6)
    (tmp_path / "model.safetensors").write_bytes(b"broken")
    assert "Gaussian" in accuracy.sample_of(tmp_path).source


def test_fewer_bits_err_more():
    sample = accuracy.Sample((torch.randn(16, 512),), "Gaussian")
    errors = [
        accuracy.weight_error(sample, name).relative for name in ("int8", "int6", "int4", "int2")
    ]
    known = [error for error in errors if error is not None]
    assert known == sorted(known)


def test_experts_are_read_as_tokens_touch_them(tmp_path, model):  # noqa: F811
    from tuner.workload import LayerGroup

    group = LayerGroup("moe", 64, 128, 2, 8, 2, "int4g128", ("mlp.experts",))
    assert times._experts_read(group, 1) == pytest.approx(2.0)
    assert 2.0 < times._experts_read(group, 2) < 4.0
    assert times._experts_read(group, 1000) == pytest.approx(8.0)


def test_a_moe_model_runs(call):  # noqa: F811
    name = "Qwen__Qwen3-30B-A3B-FP8"
    from pathlib import Path

    path = next(Path("tests/tuner/data/configs").glob(f"{name}*.json"))
    code, out, _ = call("advise", "--model", path, "--device", "cpu", "--json")
    rows = {row["format"]: row for row in json.loads(out)["formats"]}
    assert code == 0
    assert rows["int4g128"]["reasons"] == []
