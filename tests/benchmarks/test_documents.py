"""The documents' tables are those of the code and of the measured file, and the file is this
code's."""

from __future__ import annotations

import json

import pytest

from benchmarks import documents
from benchmarks.documents import PARTS, RESULTS, ROOT, rewritten
from benchmarks.quantization_error import FORMATS, weights
from humming.errors import UsageError
from humming.quantize.quantizers import METHODS, quantize


@pytest.mark.parametrize("document", PARTS)
def test_a_document_holds_what_the_code_says(document):
    assert rewritten(document) == (ROOT / document).read_text("utf-8"), (
        "run python -m benchmarks.documents"
    )


def test_a_document_without_markers_is_refused(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/formats.md").write_text("# Weight formats\n")
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    with pytest.raises(UsageError, match="once each; put them back"):
        rewritten("docs/formats.md")


def test_searched_clipping_is_within_2_percent_of_other_searches():
    report = json.loads(RESULTS.read_text())
    assert set(report["peers"]) == {"llmcompressor", "hqq"}
    for peer in report["peers"].values():
        for name, errors in peer["errors"].items():
            for kind, theirs in errors.items():
                assert report["errors"][name][kind]["mse"] <= 1.02 * theirs, (name, kind)


@pytest.mark.parametrize("name", ["int4g128", "uint4g64zf", "fp8e4m3b128", "mxfp4", "nvfp4"])
def test_the_file_is_of_this_code(name):
    report = json.loads(RESULTS.read_text())
    assert set(report["errors"]) == set(FORMATS)
    for kind, w in weights().items():
        for method in METHODS:
            recorded = report["errors"][name][kind][method]
            assert quantize(w, name, method).error(w) == pytest.approx(recorded, rel=1e-3)
