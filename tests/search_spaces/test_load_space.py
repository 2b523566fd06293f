"""Space files: what is wrong is said with file, line and the nearest legal name."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from humming.errors import SpaceError
from humming.spec.config import FAMILIES
from search_spaces import SearchSpace, builtin_folder, describe, load_space, load_spaces, validate

CPU = (builtin_folder() / "cpu.yaml").read_text()
SMALL = """\
family: cpu
applies_to:
  arch: ["*"]
  formats: [int4g128]
parameters:
  mainloop: [stream]
  code_path: [generic, avx512]
  block_m: {range: [2, 8, 3]}
  block_n:
    - 16
    - 32
  block_k: [128]
  unroll: {powers_of_two: [1, 4]}
  prefetch_bytes: [0]
  split_k: [1]
constraints:
  - expr: >-
      block_m
      <= m
    reason: too tall
  - {expr: code_path != "avx2" or has_avx2, reason: no AVX2}
"""


def _write(folder: Path, text: str, name: str = "cpu.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_becomes_a_space(tmp_path):
    space = load_space(_write(tmp_path, SMALL, "mine.yaml"))
    assert (space.name, space.family, space.formats) == ("mine", "cpu", ("int4g128",))
    assert space.parameters["block_m"] == (2, 5, 8)
    assert space.parameters["unroll"] == (1, 2, 4)
    assert space.size() == 2 * 3 * 2 * 3
    assert [c.where for c in space.constraints] == [f"{space.path}:17", f"{space.path}:21"]
    told = describe(space)
    assert told["size"] == 36
    assert told["parameters"]["code_path"] == ["generic", "avx512"]
    assert told["constraints"][0]["expr"] == "block_m <= m"
    assert validate(tmp_path) == []


MISTAKES = [
    ("parameters:", "paramters:", 5, "unknown key 'paramters'; did you mean 'parameters'?"),
    ("block_m: {", "blok_m: {", 8, "no parameter 'blok_m'; did you mean 'block_m'?"),
    ("  split_k: [1]\n", "", 5, "family 'cpu' needs the parameters split_k too"),
    ("  unroll", "  block_k: [256]\n  unroll", 13, "duplicate key 'block_k'; it stands on line 12"),
    ("    - 32", "    - 16", 11, "duplicate value 16 in parameters.block_n"),
    ("    - 32", "    - '32'", 11, "parameter 'block_n' takes integers, but got '32'"),
    ("    - 32", "    - 32.5", 11, "block_n: a value must be an integer or a text, but got 32.5"),
    ("    - 32", "    - true", 11, "a value must be an integer or a text, but got True"),
    ("    - 32", "    - 2024-01-01", 11, "'2024-01-01' is no text, integer or list"),
    ("[generic, avx512]", "[generic, avx51]", 7, "'code_path' has no value 'avx51'; did you mean"),
    ("[generic, avx512]", "[]", 7, "parameters.code_path is empty"),
    ("[generic, avx512]", "generic", 7, "parameters.code_path must be a list, but got 'generic'"),
    ("range: [2, 8, 3]", "rnage: [2, 8, 3]", 8, "unknown form 'rnage'; did you mean 'range'?"),
    ("range: [2, 8, 3]", "range: [2, 8]", 8, "range must be [lo, hi, step] in integers"),
    ("range: [2, 8, 3]", "range: [8, 2, 3]", 8, "`step >= 1` and `lo <= hi` must hold"),
    ("range: [2, 8, 3]", "range: [1, 999999999, 1]", 8, "at most 64 values"),
    ("powers_of_two: [1, 4]", "powers_of_two: [1, 5]", 13, "must be powers of two"),
    ("reason: too tall", "raeson: too tall", 20, "unknown key 'raeson'; did you mean 'reason'?"),
    ("    reason: too tall\n", "", 17, "'reason' is missing; every constraint has one"),
    ("family: cpu", "family: cpuu", 1, "unknown family 'cpuu'; did you mean 'cpu'?"),
    ("family: cpu", "family: 3", 1, "family must be a text, but got 3"),
    ("family: cpu\n", "", 1, "'family' is missing; every space file has one"),
    ("reason: too tall", 'reason: "\\e[2J"', 20, "has a character that cannot be printed"),
    ("[int4g128]", "[int4q128]", 4, "but got 'int4q128'"),
    ("[int4g128]", "['int4[g]']", 4, "formats takes names with the wildcards * and ?"),
    ("      <= m", "      <= mm", 17, "unknown name 'mm'; did you mean 'm'?"),
    ('!= "avx2"', '!= "axv2"', 21, "'code_path' has no value 'axv2'; did you mean 'avx2'?"),
    ("  split_k: [1]", "  split_k: [1", 16, "not valid YAML"),
    ("  split_k: [1]", "\tsplit_k: [1]", 15, "not valid YAML"),
    ("  split_k: [1]", "  split_k: [!!python/name:os.abc 1]", 15, "'1' is no text, integer"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "line", "says"), MISTAKES)
def test_a_mistake_is_said_with_its_line(tmp_path, old, new, line, says):
    assert SMALL.count(old) == 1
    path = _write(tmp_path, SMALL.replace(old, new))
    with pytest.raises(SpaceError) as error:
        load_space(path)
    first = str(error.value)
    assert first.startswith(f"{path}:{line}: ")
    assert says in first
    assert "\n" not in first
    assert validate(path)[0] == first


def test_validate_lists_every_mistake(tmp_path):
    text = SMALL.replace("<= m", "<= mm").replace("avx512]", "avx51]").replace("arch: ", "arhc: ")
    assert len(validate(_write(tmp_path, text))) == 1  # the shape first
    text = text.replace("arhc", "arch")
    assert [problem.split(": ")[0][-2:] for problem in validate(tmp_path)] == [":3"]
    assert len(validate(_write(tmp_path, text))) == 2


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "the file is empty"),
        (b"3", "the file must be a mapping, but got 3"),
        (b"family: cpu\nx: \xff\n", ":2: a space file is UTF-8 text"),
        (b"a: 1\nb: \x00\n", ":2: not valid YAML"),
        (b"a: 1\n---\nb: 2\n", ":2: not valid YAML"),
        (b"[" * 5000, "not valid YAML: a space file nests at most"),
        (b"#" * 70000, "at most 65536 bytes"),
        (b"a: &a [" + b"[" * 20 + b"]" * 20 + b"]", "nests at most 12 deep"),
        (b"a: &a\n  b: *a\n", "nests at most 12 deep"),
        (
            b"a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + b"".join(
                b"%c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 10))
                for c in range(97, 107)
            ),
            "at most 5000 values",
        ),
        (b'a: "\\UFFFFFFFF"', "not valid YAML"),
        (b"? [a]\n: 1\n", "a key must be a text"),
    ],
)
def test_a_file_that_is_no_space_is_refused(tmp_path, raw, says):
    path = tmp_path / "cpu.yaml"
    path.write_bytes(raw)
    with pytest.raises(SpaceError) as error:
        load_space(path)
    assert says in str(error.value)
    assert validate(path) == [str(error.value)]


def test_a_file_or_folder_that_cannot_be_read_is_named(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(SpaceError, match="cannot be read"):
            load_space(path)
    with pytest.raises(SpaceError, match=r"holds no \*.yaml file"):
        load_spaces(tmp_path)
    with pytest.raises(SpaceError, match="cannot be listed"):
        load_spaces(tmp_path / "none")


def test_a_folder_adds_to_the_built_in_spaces_and_replaces_by_name(tmp_path):
    families = sorted(path.stem for path in builtin_folder().glob("*.yaml"))
    assert {space.family for space in load_spaces()} == set(FAMILIES)
    assert [space.path for space in load_spaces()] == [f"spaces/{name}.yaml" for name in families]
    _write(tmp_path, SMALL, "extra.yaml")
    assert [space.name for space in load_spaces(tmp_path)] == sorted([*families, "extra"])
    mine = _write(tmp_path, SMALL)
    spaces = load_spaces(tmp_path)
    assert [space.name for space in spaces] == sorted([*families, "extra"])
    assert str(mine) in [space.path for space in spaces]
    _write(tmp_path, SMALL, "cpu.yml")
    with pytest.raises(SpaceError, match="two files name a space 'cpu'"):
        load_spaces(tmp_path)


def test_a_space_too_large_to_walk_is_refused(tmp_path):
    text = SMALL.replace("[0]", "{range: [0, 63, 1]}").replace("[1]", "{range: [1, 64, 1]}")
    text = text.replace("[128]", "{range: [1, 64, 1]}")
    text = text.replace("{range: [2, 8, 3]}", "{range: [1, 64, 1]}")
    with pytest.raises(SpaceError, match="at most 10000000 configs"):
        load_space(_write(tmp_path, text))


_CHARACTERS = "[]{}|>'\"#~0m()=\n\t\x00\u00e9\ud7ff"
_WORDS = "*a,&a ,!!int ,!!bool ,1e9,.inf,<<: ,? ,- ,: ,--- ,%YAML 9.9\n,\\U,//,0o9,2001-99-99,  "
_SNIPPETS = st.sampled_from([*_CHARACTERS, *_WORDS.split(","), "9" * 30])


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from([CPU, SMALL]))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 30)))
        text = text[:start] + draw(_SNIPPETS | st.text(max_size=5)) + text[end:]
    return text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(_mutated())
def test_a_mutated_file_is_a_space_or_a_space_error(tmp_path, text):
    path = tmp_path / "cpu.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        found = load_space(path)
    except SpaceError as error:
        assert str(error).startswith(str(path))
        assert str(error).isprintable()
        assert validate(path)[0] == str(error)
    else:
        assert isinstance(found, SearchSpace)
        for problem in validate(path):
            assert "is legal nowhere" in problem or "runs nothing" in problem
