"""Runs the CPU benchmark on a tiny layer and holds what it writes; no figure of time is judged."""

import json

import pytest
import torch

from benchmarks import cpu, readme
from benchmarks.sides import errors, make_sides
from benchmarks.tuned import FORMATS, model_config
from humming.dispatch.intervals import TunedTable
from humming.errors import UsageError
from humming.quantize.quantizers import quantize
from tuner.workload import read_workload

SIDES = ["humming", "heuristic", "torch_int4pack", "torch_bf16", "torch_fp32"]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    before = torch.get_num_threads()
    out = tmp_path_factory.mktemp("benchmark") / "results" / "tiny.json"
    arguments = ["--n", "80", "--k", "256", "--m", "1,3", "--budget", "15s", "--rounds", "5"]
    try:
        assert cpu.main([*arguments, "--out", str(out)]) == 0
    finally:
        torch.set_num_threads(before)
    return json.loads(out.read_text("utf-8"))


def test_each_shape_and_m_is_a_result(report):
    assert [(r["n"], r["k"], r["m"]) for r in report["results"]] == [(80, 256, 1), (80, 256, 3)]
    for result in report["results"]:
        assert list(result["sides"]) == SIDES
        assert result["rounds"] == 5
        assert {len(side["samples_us"]) for side in result["sides"].values()} == {5}
        assert result["sides"]["humming"]["times_slower"]["ratio"] == 1.0


def test_the_config_is_the_tuners(report):
    for result in report["results"]:
        assert result["settled"]["measured"] > 0
        assert len(result["record"]) == len(result["table"]) == 32
        assert result["config"]["family"] == "cpu"


def test_every_side_is_right(report):
    for result in report["results"]:
        for side in result["sides"].values():
            assert side["error"]["relative"] < 2.0**-7
        assert result["sides"]["humming"]["error"]["of_bound"] <= 1.0


def test_provenance_says_where_and_with_what(report):
    facts = report["provenance"]
    assert facts["torch"] == torch.__version__
    assert facts["device"]["threads"] == report["threads"] == 1
    assert facts["identity"]["compiler_version"] and facts["identity"]["source_hash"]
    assert len(facts["load_average"]) == len(facts["load_average_after"]) == 3


def test_the_table_has_a_row_for_each_result(report):
    rows = readme.markdown(report).splitlines()
    assert sum(row.startswith("| 80 x 256 |") for row in rows) == 2
    text = f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n"
    new = readme.rewritten(text, report)
    assert "old" not in new and new.startswith("before\n") and new.endswith("\nafter\n")
    assert readme.rewritten(new, report) == new


def test_a_readme_without_markers_is_refused(report):
    with pytest.raises(UsageError, match="put them back"):
        readme.rewritten("no markers", report)


def test_all_sides_compute_the_same_weight():
    q = quantize(torch.randn(48, 256).to(torch.bfloat16))
    for side in make_sides(q, 4, TunedTable("none", ()), cache_bytes=1 << 16, seed=0):
        assert len(side.calls) >= 2
        outputs = [call() for call in side.calls]
        assert all(torch.equal(outputs[0], other) for other in outputs[1:])
        assert errors(side, q)["relative"] < 2.0**-7


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_format_s_config_is_read_as_that_format(format, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model_config(80, 256, format)))
    workload = read_workload(tmp_path / "config.json")
    assert [(g.n, g.k, g.format) for g in workload.problems] == [(80, 256, format)]


def test_our_sides_share_their_copies():
    q = quantize(torch.randn(48, 256).to(torch.bfloat16), "int8-int8")
    ours, heuristic, *_ = make_sides(q, 4, TunedTable("none", ()), cache_bytes=1 << 16, seed=0)
    pairs = zip(ours.calls, heuristic.calls, strict=True)
    codes = [[call.__closure__[0].cell_contents.packed_codes for call in pair] for pair in pairs]
    assert all(one is other for one, other in codes)
    assert len({one.data_ptr() for one, _ in codes}) == len(codes) >= 2
    assert errors(heuristic, q)["of_bound"] <= 1.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "int5"],
        ["--n", "1,2"],
        ["--m", "0"],
        ["--n", "x"],
        ["--budget", "soon"],
        ["--rounds", "2"],
    ],
)
def test_bad_arguments_are_one_sentence(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cpu.parse_arguments(arguments)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
