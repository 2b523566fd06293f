"""What users are told: print(module), humming.report, HUMMING_LOG, and one warning a problem."""

import json
import warnings

import pytest
import torch
from torch import nn

import humming
from humming.dispatch import notices
from humming.errors import LayoutError, UntunedWarning
from humming.settings import logs


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
