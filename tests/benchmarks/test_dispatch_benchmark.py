"""The dispatch benchmark runs and says where its figures are from; it asserts no time."""

import json

from benchmarks.dispatch import main


def test_a_short_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.dispatch.os.sched_setaffinity", lambda *_: None)
    monkeypatch.setattr("benchmarks.dispatch.foul", lambda conditions: None)
    out = tmp_path / "dispatch.json"
    main(["--rounds", "3", "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["provenance"]["device"]["kind"] == "cpu"
    first = report["results"][0]
    assert (first["m"], first["dtype"]) == (1, "float32")
    for row in report["results"]:
        assert row["rounds"] + row["foul_rounds"] == 3
        assert {len(samples) for samples in row["samples_us"].values()} == {row["rounds"]}
        assert row["us"]["layer"] > row["us"]["loop"] > 0
