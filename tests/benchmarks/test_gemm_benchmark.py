"""benchmarks.gemm without a GPU: its models, its rounds, its command line, the peer's protocol."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gemm_readme
from benchmarks.gemm import _rounds, _table_of, main, parse_arguments
from benchmarks.gemm_formats import COMPARED
from benchmarks.gemm_models import M_VALUES, SHAPES, _models
from benchmarks.gemm_peer import PeerProcess
from humming.errors import HummingError
from humming.spec.config import DequantizeConfig, config_from_dict, config_to_dict
from humming.spec.device import Device
from tuner.workload import read_workload

ROOT = Path(__file__).parents[2]
GPU = Device("cuda", "a GPU", "sm90", 50 << 20, compute_capability=(9, 0))


@pytest.mark.parametrize("shapes", [SHAPES, SHAPES[:1], ((640, 512), *SHAPES[1:4])])
def test_models_quantize_exactly_the_shapes(tmp_path, shapes):
    found = []
    for config, held in _models(shapes, "int4g128"):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), "utf-8")
        problems = {(p.n, p.k) for p in read_workload(path, 1, None).problems}
        assert problems == set(held)
        found += held
    assert sorted(found) == sorted(shapes)


@pytest.mark.parametrize("format", COMPARED)
def test_models_are_of_the_format(tmp_path, format):
    path = tmp_path / "config.json"
    ((config, _),) = _models([(640, 512)], format)
    path.write_text(json.dumps(config), "utf-8")
    assert {p.format for p in read_workload(path, 1, None).problems} == {format}


def test_sides_take_turns_and_ratios_say_how_often_ours_fits():
    order = []

    def side(name, us):
        def sample(replays):
            assert replays == 3
            order.append(name)
            return us

        return sample

    sides = {
        "us": ("ours", 2.0),
        "torch_bf16_us": ("torch", 6.0),
        "humming_kernels_us": ("peer", 3.0),
    }
    row = _rounds({name: side(*of) for name, of in sides.items()})
    assert [row[name] for name in sides] == [2.0, 6.0, 3.0]
    assert row["torch_bf16_ratio"] == [3.0, 3.0, 3.0]
    assert row["humming_kernels_ratio"] == [1.5, 1.5, 1.5]
    assert order == ["ours", "torch", "peer"] * 5


def test_a_table_for_checking_serves_each_m_by_its_own_config():
    config = config_to_dict(DequantizeConfig(8, 2, 0))
    rows = [
        {
            "format": "int4g128",
            "n": n,
            "k": k,
            "m": m,
            "us": 3.0,
            "record_id": "r",
            "config": config,
        }
        for (n, k), m in itertools.product(SHAPES[:2], reversed(M_VALUES))
    ]
    table = _table_of(rows, GPU)
    assert [(entry.problem.n, entry.problem.k) for entry in table.entries] == sorted(SHAPES[:2])
    for entry in table.entries:
        assert tuple(interval.m for interval in entry.intervals) == M_VALUES
        assert all(i.m_high == i.m + 1 for i in entry.intervals)


@pytest.mark.parametrize(
    "arguments", [["--m", "0"], ["--shapes", "8"], ["--budget", "soon"], ["--format", "int9"]]
)
def test_unusable_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_arguments(arguments)
    assert ended.value.code == 2
    assert "error" in capsys.readouterr().err


def test_a_cpu_is_refused_in_one_sentence(capsys):
    assert main(["--device", "cpu"]) == 2
    assert "needs a GPU" in capsys.readouterr().err


def test_a_lost_peer_is_said(tmp_path):
    peer = PeerProcess(tmp_path)  # no humming-kernels there
    with pytest.raises(HummingError, match=r"peer process has ended; its last words: .*humming"):
        peer.open(64, 128, "int4g128")
    peer.close()


def test_the_peers_server_imports_nothing_of_ours():
    script = ROOT / "benchmarks" / "peer_server.py"
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import runpy, sys; runpy.run_path({str(script)!r}); "
            "print(any(m.split('.')[0] in ('humming', 'tuner') for m in sys.modules))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_the_readme_has_what_the_file_has():
    report = json.loads(gemm_readme.RESULTS.read_text("utf-8"))
    compared = [(row["n"], row["k"], row["m"]) for row in report["rows"]]
    points = [(n, k, m) for n, k in SHAPES for m in M_VALUES]
    assert compared == points[: len(compared)], "a run that ends early leaves out the last ones"
    text = (ROOT / "README.md").read_text("utf-8")
    assert (len(compared) < len(points)) == ("time ended before the last eleven" in text)
    for row in report["rows"]:
        assert config_from_dict(row["config"]).family == row["family"]
        assert row["rel_error"] <= 1.1 * row["torch_rel_error"]
    assert gemm_readme.with_results(text) == text, "run python -m benchmarks.gemm_readme"
