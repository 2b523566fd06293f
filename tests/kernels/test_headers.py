"""The house rules of kernel headers: four opening lines, intrinsics in isa/ only, formatted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from humming.jit.source import INCLUDE_DIR, KERNELS_DIR

HEADERS = sorted(INCLUDE_DIR.rglob("*.h"))
TEMPLATES = sorted((KERNELS_DIR / "cpu").glob("*.j2"))
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("header", HEADERS, ids=lambda p: p.relative_to(INCLUDE_DIR).as_posix())
def test_header_opens_with_what_lives_here_who_runs_it_and_what_it_reads(header):
    text = header.read_text()
    opening = text[: text.index("#pragma once")]
    assert all(line.startswith("//") for line in opening.splitlines())
    assert "// Run by " in opening
    assert "// Reads " in opening
    assert "// Technique: " in opening or "// Source: " in opening
    assert len(text.splitlines()) <= 400


def test_intrinsics_and_jinja_stay_in_their_rooms():
    for header in HEADERS:
        text = header.read_text()
        assert not re.search(r"\{[{%#] ", text)
        assert header.parent.name == "isa" or not re.search(r"\b_mm\d*_|immintrin", text)
    for template in TEMPLATES:
        statements = re.findall(r"\{%(.*?)%\}", template.read_text())
        assert all(re.fullmatch(r' include "\w+\.j2" ', statement) for statement in statements)


def test_stores_to_the_output_are_in_the_epilogue_only():
    for header in HEADERS:
        if "store_some<Element>" in header.read_text():
            assert header.parent.name == "epilogue"


def test_headers_are_formatted():
    tool = Path(sys.executable).with_name("clang-format")
    if not tool.exists():
        pytest.fail("clang-format is missing: install the extra 'test'")
    command = [str(tool), "--dry-run", "-Werror", *map(str, HEADERS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
