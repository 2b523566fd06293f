"""The benchmark of compile times runs and leaves the user's cache alone; it asserts no time."""

import json
import os

import pytest

from benchmarks.compiling import main


@pytest.mark.slow
def test_kernels_of_a_layer_are_compiled_alone_and_together(tmp_path):
    cache, out = os.environ["HUMMING_CACHE"], tmp_path / "compiling.json"
    main(["--device", "cpu", "--formats", "int4g128", "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["provenance"]["device"]["kind"] == "cpu"
    (layer,) = report["layers"]
    assert layer["kernels"] == len(layer["alone_s"]) > 1
    assert all(seconds > 0 for seconds in layer["alone_s"].values()) and layer["layer_s"] > 0
    assert os.environ["HUMMING_CACHE"] == cache
