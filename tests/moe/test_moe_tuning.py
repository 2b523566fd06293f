"""Experts are tuned as dense layers are: verification, timing, tables; routing is part of the
problem, and the nearest one serves."""

import json
from dataclasses import replace

import pytest
import torch
from moe_cases import experts, ids_of

import humming
from humming.dispatch.dispatcher import lookup, resolve
from humming.dispatch.intervals import Interval, TableEntry, TunedTable
from humming.dispatch.notices import command_for
from humming.errors import LegalityError
from humming.jit.cache import compiled
from humming.jit.detect import cpu_device
from humming.jit.identity import here
from humming.jit.load import load
from humming.moe.routing import draw_ids
from humming.moe.rows import Rows
from humming.spec.config import CpuConfig
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.problem import Problem
from humming.spec.routing import check_routing, distance, loads_of, routing_of
from tuner.searching.search import _unlike
from tuner.worker.bench_experts import bench_for
from tuner.worker.messages import Open, Trial
from tuner.worker.verify import WrongResultError
from tuner.worker.verify_experts import check_experts, make_experts_case


def problem(m: int = 4, routing: str = "uniform") -> Problem:
    return Problem(
        "int4g32", 40, 64, m, "fp32", "fp32", op="moe", experts=6, top_k=2, routing=routing
    )


@pytest.mark.parametrize("name", ["", "even", "zipf", "zipf-1", "shares00", "shares" + "zz" * 16])
def test_what_is_no_routing_is_refused(name):
    with pytest.raises(LegalityError, match="routing must be"):
        check_routing(name)


def test_a_recorded_routing_is_near_to_what_was_counted():
    for of in ("uniform", "zipf1.2", "zipf0.5"):
        counts = [round(1e6 * load) for load in loads_of(of, 64)]
        assert distance(routing_of(counts), of, 64) < 0.05
    assert routing_of([7] * 128) == "uniform"
    assert distance("uniform", "zipf1.2", 64) > distance("zipf1", "zipf1.2", 64) > 0


def test_drawn_ids_fall_as_the_routing_says():
    generator = torch.Generator().manual_seed(1)
    for routing in ("uniform", "zipf1.2"):
        ids = draw_ids(routing, 4000, 16, 1, generator)
        counts = torch.bincount(ids.flatten(), minlength=16).sort(descending=True).values
        wanted = torch.tensor(loads_of(routing, 16)) * 4000
        torch.testing.assert_close(counts.float(), wanted, atol=60, rtol=0.3)
    ids = draw_ids("zipf2", 50, 16, 4, generator)
    assert all(len(set(row)) == 4 for row in ids.tolist())


def config_of_here() -> CpuConfig:
    path = [p for p in CODE_PATH_FLAGS if cpu_device().supports(p) and "bf16" not in p][-1]
    path = "avx2" if "vnni" in path else path
    return CpuConfig("stream", path, 2, 16, 128, 1, 0, 1)


def test_a_trial_verifies_and_times():
    asked, device = problem(), replace(cpu_device(), threads=1)
    bench = bench_for(Open(asked, 1, 9), device)
    kernel = compiled(config_of_here(), asked, device)
    with torch.inference_mode():
        found = bench.trial(Trial(kernel, 2))
        assert found.outcome == "ok", found
        assert len(found.samples_us) > 1
        assert bench.baseline().outcome == "ok"


def test_a_kernel_that_mistakes_experts_is_caught():
    asked, device = problem(), cpu_device()
    case = make_experts_case(asked, 5, torch.device("cpu"))
    kernel = load(compiled(config_of_here(), asked, device), device)
    room = torch.empty(1 << 20, dtype=torch.uint8)

    def right(x, packed, bias, out, rows):
        kernel.launch_experts(x, packed, bias, out, rows, room)

    def wrong(x, packed, bias, out, rows):
        other = Rows.indexed((rows.groups + (rows.groups == 3)).view_as(rows.groups))
        right(x, packed, bias, out, other)

    assert check_experts(right, case, 9, 1) <= 1
    with pytest.raises(WrongResultError):
        check_experts(wrong, case, 40, 1)


def test_the_nearest_routing_serves_and_says_so(tmp_path):
    identity, config = here(cpu_device()), config_of_here()
    other = replace(config, block_m=1)
    entries = [
        TableEntry(
            identity,
            problem(0, routing),
            (Interval(0, 64, 8, of, 1.0, 2.0, routing),),
        )
        for routing, of in (("uniform", config), ("zipf1.2", other))
    ]
    table = TunedTable("0" * 32, tuple(entries))

    def served(routing: str) -> tuple[object, str]:
        found = lookup(resolve(problem(0, routing), identity, table), 8)
        return found.config, found.source

    assert served("uniform") == (config, "tuned")
    assert served("zipf1.2") == (other, "tuned")
    assert served("zipf1") == (other, "nearest")
    assert served("zipf0.1") == (config, "nearest")


def test_experts_with_as_many_rows_are_like_each_other():
    ours = replace(problem(1024), experts=256)
    alike, crowded = replace(problem(512), experts=128), replace(problem(1024), experts=16)
    assert _unlike(alike, ours) < _unlike(crowded, ours)
    assert _unlike(problem(16), problem(64)) < _unlike(problem(1), problem(64))
    dense = replace(ours, op="dense", experts=None, top_k=None, routing=None)
    assert _unlike(dense, ours) == float("inf")


def test_the_command_that_tunes_names_the_routing():
    assert "--routing" not in command_for(problem(4), "cpu")
    assert "--routing zipf1.2" in command_for(problem(4, "zipf1.2"), "cpu")


@pytest.mark.slow
def test_the_main_job_tunes_a_mixture_and_serves_it(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from tuner.cli import app

    config = {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 64,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "vocab_size": 64,
        "dtype": "float32",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path / "data"))
    arguments = ["--model", str(tmp_path), "--format", "int4g32", "--m", "4", "--budget", "60s"]
    done = CliRunner().invoke(app, [*arguments, "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    rows = {row["op"] for row in report["problems"]}
    assert "moe" in rows
    assert report["skipped"] == []
    of = experts("int4g32", 4, 64, 64)
    x, ids = torch.randn(4, 64), ids_of("uniform", 4, 2, 4)
    humming.moe_gemm(x, of.packed, ids=ids, table=report["table"])
