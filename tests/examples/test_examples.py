"""Runs every numbered example as a user does, by its main(), and holds what it prints."""

import importlib.util
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("[0-9]*.py"))


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert capsys.readouterr().out == "", "importing an example does nothing"
    module.main()
    return capsys.readouterr().out


def example(number: str) -> Path:
    (path,) = [path for path in EXAMPLES if path.name.startswith(number)]
    return path


def test_they_are_numbered_in_order():
    assert [path.name[:3] for path in EXAMPLES] == [f"0{number}_" for number in range(1, 8)]


def test_quantize(capsys):
    out = run(example("01"), capsys)
    assert "unpack(pack(q)) is q: True" in out
    assert 0.05 < float(re.search(r"error of the weight: ([\d.]+)", out)[1]) < 0.15


def test_linear(capsys):
    out = run(example("02"), capsys)
    assert "HummingLinear(" in out and "format=int4g128" in out
    errors = [float(text) for text in re.findall(r"relative error ([\d.e+-]+)", out)]
    assert len(errors) == 2 and max(errors) < 2.0**-8


def test_tune(capsys):
    out = run(example("03"), capsys)
    assert int(re.search(r"trials: (\d+)", out)[1]) > 0
    layer = next(line for line in out.splitlines() if line.startswith("HummingLinear("))
    assert re.search(r"table [0-9a-f]{8} for m in \[0, \d+\) tuned exact", layer)
    assert "served: [1, 512]" in out


def test_convert(capsys):
    out = run(example("04"), capsys)
    assert out.count("HummingLinear(") == 3
    assert "(lm_head): Linear(" in out
    assert 0.0 < float(re.search(r"of the outputs: ([\d.]+)", out)[1]) < 0.3


def test_search_space(capsys):
    out = run(example("05"), capsys)
    assert "small: 54 combinations for family cpu" in out
    assert re.search(r"small\.yaml:\d+: .*'unrol'.*unroll", out)


def test_checkpoint(capsys):
    out = run(example("06"), capsys)
    assert "FP8: 3 layers, 8.001 bits a weight" in out
    assert "q_proj: fp8e4m3t-fp8e4m3 [256, 256]" in out
    assert "fused: fp8e4m3-fp8e4m3 [384, 256], a rank's share [192, 256]" in out
    assert float(re.search(r"relative error ([\d.e-]+)", out)[1]) < 0.004


def test_experts(capsys):
    out = run(example("07"), capsys)
    assert float(re.search(r"relative error of int8g32: ([\d.e-]+)", out)[1]) < 0.02
    assert "the nearest is zipf0.3" in out
    assert "one projection: [256, 4, 128]" in out
