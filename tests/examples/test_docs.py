"""Holds the documents to the truth: every path, command, option, target and variable they name
exists, and every figure has a file behind it."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from benchmarks import readme
from tuner.cli import app

ROOT = Path(__file__).parents[2]
DOCS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
DOCS += ["docs/fleet.md", "docs/checkpoints.md", "docs/formats.md", "docs/support.md"]
NOT_OURS = {"config.json", "humming.db", "__init__.py"}
TREE = ["humming", "search_spaces", "tuner", "tests", "alembic"]
SUFFIXES = {".py", ".md", ".yaml", ".toml", ".ini", ".json", ".j2", ".h", ".cfg"}
PATH = re.compile(r"\.?[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*/?")
VARIABLE = re.compile(r"HUMMING_[A-Z_]+")


def text_of(doc: str) -> str:
    return (ROOT / doc).read_text("utf-8")


def code_of(doc: str) -> Iterator[str]:
    """Every inline code span, and every line of an indented or fenced block."""
    fenced = False
    for line in text_of(doc).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            yield line.strip()
    prose = re.sub(r"```.*?```", "", text_of(doc), flags=re.DOTALL)
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose))


def paths_of(doc: str) -> Iterator[str]:
    first_folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    for code in code_of(doc):
        for word in re.split(r"[\s,;()]+", code):
            word = word.rstrip(":").split("=")[-1]
            if not PATH.fullmatch(word) or word in NOT_OURS:
                continue
            under_root = "/" in word and word.split("/")[0] in first_folders
            if under_root or ("/" not in word and Path(word).suffix in SUFFIXES):
                yield word


def commands_of(doc: str) -> Iterator[list[str]]:
    for code in code_of(doc):
        for call in re.findall(r"humming-tune((?: [\w\[\]./,-]+)*)", code):
            words = call.replace("[", " ").replace("]", " ").split()
            if words:
                yield words


@pytest.mark.parametrize("doc", DOCS)
def test_every_path_exists(doc):
    names = {path.name for folder in TREE for path in (ROOT / folder).rglob("*")}
    missing = [path for path in paths_of(doc) if not (ROOT / path).exists() and path not in names]
    assert missing == []


def test_paths_are_found():
    assert len(set(paths_of("ARCHITECTURE.md"))) > 50
    assert "humming/spec/legality/" in set(paths_of("CONTRIBUTING.md"))


def test_the_architecture_names_every_module_of_the_road():
    named = set(paths_of("ARCHITECTURE.md"))
    road = ("planning", "searching", "worker", "measuring", "promoting", "evidence")
    for folder in ("humming", "humming/spec", "tuner", *(f"tuner/{name}" for name in road)):
        modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("[a-z]*.py")}
        assert modules <= named, f"ARCHITECTURE.md lacks {sorted(modules - named)}"


@pytest.mark.parametrize("doc", DOCS)
def test_every_command_and_option_exists(doc):
    for words in commands_of(doc):
        command = typer.main.get_command(app)
        while words and words[0] in children(command):
            command = children(command)[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        takes_words = any(p.param_type_name == "argument" for p in command.params)
        for place, word in enumerate(words):
            if word.startswith("--"):
                assert word in known | {"--help"}, f"{doc}: humming-tune has no {word}"
            elif place == 0 or not words[place - 1].startswith("--"):
                assert takes_words, f"{doc}: humming-tune has no command {word}"
                named = word in ("FILE", "FOLDER", "RECORD", "A", "B", "NAME", "ID")
                assert named or "." in word, f"{doc}: humming-tune has no command {word}"


def test_the_readme_names_every_command_and_option():
    group = typer.main.get_command(app)
    text = text_of("README.md")
    options = set()
    for name, command in walk(group):
        assert f"humming-tune {name}".strip() in text
        options |= {opt for p in command.params for opt in p.opts if opt.startswith("--")}
    for option in options - {"--version"}:
        assert f"`{option}" in text, f"README.md does not name {option}"


def children(command: Any) -> dict[str, Any]:
    """Commands below a group, by name; of a plain command none. (typer may bring its own click.)"""
    return getattr(command, "commands", {})


def walk(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, child in children(command).items():
        yield from walk(child, f"{name} {word}".strip())


def test_variables_are_those_of_the_code():
    read = set()
    for package in ("humming", "search_spaces", "tuner"):
        for path in (ROOT / package).rglob("*.py"):
            read |= set(VARIABLE.findall(path.read_text("utf-8")))
    assert set(VARIABLE.findall(text_of("README.md"))) == read


@pytest.mark.parametrize("doc", DOCS)
def test_make_targets_and_modules_exist(doc):
    makefile = text_of("Makefile")
    for code in code_of(doc):
        for target in re.findall(r"\bmake ([a-z-]+)", code):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{doc}: make {target}"
        for module in re.findall(r"python -m (benchmarks\.\w+)", code):
            assert importlib.util.find_spec(module), f"{doc}: python -m {module}"


def test_the_readme_table_is_the_results_file():
    report = json.loads(readme.RESULTS.read_text("utf-8"))
    text = text_of("README.md")
    assert readme.rewritten(text, report) == text, "run python -m benchmarks.readme"
    report = json.loads(readme.FORMAT_RESULTS.read_text("utf-8"))
    assert readme.with_formats(text, report) == text, "run python -m benchmarks.readme"


def test_the_readme_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HUMMING_DATA", str(tmp_path))
    (code,) = re.findall(r"```python\n(.*?)```", text_of("README.md"), flags=re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", text_of("README.md"), flags=re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    configs = re.compile(r"configs=.*")
    assert configs.sub("", printed) == configs.sub("", shown)
    assert "heuristic (no tuned table)" in printed
