"""What users are told: print(module), humming.report, HUMMING_LOG, and one warning a problem."""

import json
import warnings

import pytest
import torch
from torch import nn

import humming
from humming.dispatch import notices
from humming.dispatch.heuristics import heuristic
from humming.dispatch.tables import Interval, TableEntry, Trials, write_generation
from humming.errors import LayoutError, UntunedWarning
from humming.jit.identity import here, serving_device
from humming.settings import logs
from humming.spec.config import CpuConfig, config_id
from humming.spec.problem import Problem


@pytest.fixture(autouse=True)
def _nobody_was_warned(monkeypatch):
    monkeypatch.setattr(notices, "_WARNED", set())


def model_of():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(128, 96), nn.Linear(96, 128))
    return humming.convert(nn.Sequential(block, nn.Linear(128, 96, bias=True)), "int4g32")


def test_a_report_says_what_serves_and_how_to_tune_it():
    model = model_of()
    found = humming.report(model)
    assert [layer.names for layer in found.layers] == [("0.0", "1"), ("0.1",)]
    first = found.layers[0]
    assert (first.format, first.n, first.k, first.place) == ("int4g32", 96, 128, "cpu")
    assert first.intervals[0].m_low == 0 and first.intervals[0].source == "heuristic"
    assert found.nbytes == sum(t.nbytes for t in model.buffers())
    text = str(found)
    assert text.startswith("3 layers, ") and "0.0 and 1 more: int4g32 n=96 k=128" in text
    assert "tune it with `humming-tune --model" in text and "--device cpu" in text
    assert json.loads(json.dumps(found.to_dict()))["layers"][1]["names"] == ["0.1"]


def test_a_tuned_layer_reports_what_was_measured(make_table):
    model = nn.Sequential(nn.Linear(128, 96, bias=False))
    humming.convert(model, "int4g128")
    humming.prepare(model, table=make_table(96, 128, prefetch_bytes=4096).path, m=1)
    (layer,) = humming.report(model).layers
    tuned = [one for one in layer.intervals if one.source == "tuned exact"]
    measured = [(one.measured_m, one.us, one.speedup) for one in tuned]
    assert measured == [(1, 1.0, 2.0), (16, 1.0, 2.0)]
    assert "1.0 us at m=1, 2.00 x as fast as the heuristic" in str(layer)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UntunedWarning)
        model(torch.randn(1, 128))


def test_a_log_topic_that_is_none_gets_one_warning(monkeypatch):
    monkeypatch.setenv("HUMMING_LOG", "foo")
    with pytest.warns(RuntimeWarning, match="HUMMING_LOG must be `dispatch` or empty") as found:
        assert not logs("dispatch") and not logs("dispatch")
    assert len(found) == 1


def test_experts_are_reported_too():
    up, down = torch.randn(3, 64, 32), torch.randn(3, 32, 32)
    experts = humming.HummingExperts.from_float(up, down, "int4g32", top_k=2)
    found = humming.report(experts)
    assert [(one.names, one.experts, one.n, one.k) for one in found.layers] == [
        (("up",), 3, 64, 32),
        (("down",), 3, 32, 32),
    ]
    assert found.nbytes == sum(t.nbytes for t in experts.buffers())
    assert found.layers[0].intervals and "up: int4g32 experts=3 n=64 k=32" in str(found)
    json.dumps(found.to_dict())


def test_what_is_no_model_gets_a_sentence():
    with pytest.raises(LayoutError, match="report needs a model with HummingLinear"):
        humming.report(nn.Linear(4, 4))
    with pytest.raises(LayoutError, match=r"report takes an nn\.Module"):
        humming.report("model")


def test_one_warning_a_problem_names_the_command():
    model = model_of()
    x = torch.randn(2, 128)
    with pytest.warns(UntunedWarning) as told:
        for m in (1, 2, 5):
            model(x.repeat(m, 1))
            model_of()(x)
    texts = [str(warning.message) for warning in told if warning.category is UntunedWarning]
    assert len(texts) == 2  # of two shapes
    assert "int4g32 n=96 k=128 m=2 fp32 was not tuned for cpu" in texts[0]
    assert (
        "`humming-tune --model <its config.json> --format int4g32 --m 2 --device cpu`" in texts[0]
    )


def test_lines_of_dispatch_where_they_are_asked_for(monkeypatch, capfd):
    layer = humming.HummingLinear.from_linear(nn.Linear(96, 56), "int4g32")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)
        layer(torch.randn(1, 96))
        assert "humming dispatch" not in capfd.readouterr().err
        monkeypatch.setenv("HUMMING_LOG", "other,dispatch")
        layer(torch.randn(3, 96))
        layer(torch.randn(3, 96))
    lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("humming dispatch")]
    assert len(lines) == 1
    assert lines[0].startswith("humming dispatch: int4g32 n=56 k=96 m=3 fp32 on cpu -> ")
    assert "(heuristic, m in [" in lines[0]


def with_neighbours(tmp_path):
    """A table of four layers, whose configs beat the heuristic on each other, as a file."""
    config = CpuConfig("stream", "generic", 1, 32, 128, 2, 0, 1)
    device = serving_device()
    entries = []
    for n, k in ((64, 256), (128, 256), (64, 512), (128, 512)):
        layer = Problem("int4g128", n, k, 0, "fp32", "fp32")
        trials = []
        for m in (1, 2):
            default = config_id(heuristic(layer.at(m), device))
            ratios = {default: 1.0, config_id(config): 0.8}
            trials.append(Trials(m, default, tuple(sorted(ratios.items()))))
        intervals = (Interval(0, 3, 1, config, 8.0, 10.0, f"{n}x{k}"),)
        entries.append(TableEntry(here(device), layer, intervals, tuple(trials)))
    return write_generation(entries, tmp_path).path, config


def test_a_neighbours_config_is_named_wherever_the_user_looks(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("HUMMING_LOG", "dispatch")
    table, config = with_neighbours(tmp_path)
    model = nn.Sequential(nn.Linear(256, 96, bias=False))
    humming.convert(model, "int4g128")
    humming.prepare(model, table=table, m=1)
    said = "transfer from int4g128 n=128 k=256 m=1; expected 0.80 x the heuristic's time"
    assert said in str(model[0])
    (layer,) = humming.report(model).layers
    first = layer.intervals[0]
    assert (first.config, first.source) == (str(config), "transfer exact")
    assert first.transfer.startswith(said) and (first.us, first.speedup) == (None, None)
    assert said in str(layer) and layer.tune_with is not None
    with pytest.warns(UntunedWarning, match="so a neighbour's config serves"):
        model(torch.randn(1, 256))
    assert f"{config} (transfer exact, record 128x256, {said}" in capfd.readouterr().err


def test_one_layer_is_no_layers():
    assert str(humming.report(nn.Sequential(model_of()[1]))).startswith("1 layer, ")
