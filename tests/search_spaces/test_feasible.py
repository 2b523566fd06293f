"""Values that are legal nowhere are named with their line and the rule, and no others."""

import time

import pytest

from search_spaces import builtin_folder, validate

CPU = (builtin_folder() / "cpu.yaml").read_text()


def written(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def only_parameters(family, **values):
    lines = [f"family: {family}", 'applies_to: {arch: ["*"], formats: ["*"]}', "parameters:"]
    return "\n".join([*lines, *(f"  {name}: {value}" for name, value in values.items()), ""])


PLAIN = {
    "mainloop": "[stream, blocked]",
    "code_path": "[generic, avx512]",
    "block_m": "[1, 4]",
    "block_n": "[16, 64]",
    "block_k": "[128, 256]",
    "unroll": "[1, 2]",
    "prefetch_bytes": "[0, 64]",
    "split_k": "[1, 2]",
}


@pytest.mark.parametrize("path", sorted(builtin_folder().glob("*.yaml")), ids=lambda p: p.stem)
def test_every_built_in_value_is_legal_somewhere(path):
    start = time.process_time()
    assert validate(path) == []
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("knob", "values", "says"),
    [
        ("block_m", "[1, 77]", "value 77 of 'block_m' is legal nowhere: `1 <= block_m <= 16`"),
        ("block_n", "[16, 24]", "value 24 of 'block_n' is legal nowhere: `block_n % 16 == 0`"),
        ("unroll", "[1, 3]", "value 3 of 'unroll'"),
        ("prefetch_bytes", "[0, -64]", "value -64 of 'prefetch_bytes'"),
        ("split_k", "[1, 0]", "value 0 of 'split_k'"),
        ("block_k", "[128, 96]", "value 96 of 'block_k'"),
    ],
)
def test_a_value_that_no_rule_allows(tmp_path, knob, values, says):
    assert validate(written(tmp_path, only_parameters("cpu", **PLAIN))) == []
    path = written(tmp_path, only_parameters("cpu", **{**PLAIN, knob: values}))
    found = validate(path)
    assert len(found) == 1
    line = 4 + list(PLAIN).index(knob)
    assert found[0].startswith(f"{path}:{line}: ") and says in found[0]


def test_a_knob_without_any_legal_value_does_not_blame_all_others(tmp_path):
    found = validate(written(tmp_path, only_parameters("cpu", **{**PLAIN, "unroll": "[3]"})))
    assert any(":9: value 3 of 'unroll'" in line for line in found)
    assert not any("'block_m'" in line for line in found)


def test_a_value_that_only_fails_beside_every_other_choice(tmp_path):
    """block_k 256 goes with the blocked mainloop alone, which this space does not offer."""
    found = validate(written(tmp_path, only_parameters("cpu", **{**PLAIN, "mainloop": "[stream]"})))
    assert len(found) == 1 and "block_k == 128" in found[0]


def test_a_space_for_devices_that_its_family_does_not_run_on(tmp_path):
    text = only_parameters("cpu", **PLAIN).replace('arch: ["*"]', "arch: [sm90]")
    found = validate(written(tmp_path, text))
    assert len(found) == 1 and "runs nothing" in found[0] and ":2: " in found[0]
