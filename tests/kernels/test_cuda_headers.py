"""The house rules of CUDA headers: four opening lines, each trick in its room, formatted."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from humming.jit.cuda.source import INCLUDE_DIR

HEADERS = sorted(INCLUDE_DIR.rglob("*.cuh"))
TEMPLATES = sorted((INCLUDE_DIR.parent).glob("*.j2"))
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("header", HEADERS, ids=lambda p: p.relative_to(INCLUDE_DIR).as_posix())
def test_header_opens_with_what_lives_here_who_runs_it_and_what_it_reads(header):
    text = header.read_text()
    opening = text[: text.index("#pragma once")]
    assert all(line.startswith("//") for line in opening.splitlines())
    for mark in ("// Run by ", "// Reads -> writes: ", "// Source: "):
        assert mark in opening
    assert len(text.splitlines()) <= 400


def test_each_trick_stays_in_its_room():
    rooms = {
        r"\basm\b": "ptx",
        r"\bblockIdx\b|\bgridDim\b": "scheduler",
        r"\bstore_global_": "epilogue",
        r"\band_or\(|\bfma_[b]?f16x2\(|\brepeat_(low|high)\(": "dequant",
    }
    for header in HEADERS:
        code = re.sub(r"//.*", "", header.read_text())
        assert not re.search(r"\{[{%#] ", code)
        for trick, room in rooms.items():
            if header.parent.name not in (room, "ptx") and not _asks_for_scales(header, trick):
                assert not re.search(trick, code), f"{header} has {trick}"


def _asks_for_scales(header: Path, trick: str) -> bool:
    """A mainloop may order that a pair of scales be repeated."""
    return (
        header.name == "dequantize.cuh" and header.parent.name == "mainloop" and "repeat" in trick
    )


def test_templates_hold_constants_only():
    assert {path.name for path in TEMPLATES} == {
        "dequantize.cu.j2",
        "experts.cu.j2",
        "mma.cu.j2",
        "mma_bytes.cu.j2",
        "quantize_input.cu.j2",
        "read_probe.cu.j2",
        "scaled_mm.cu.j2",
        "skinny.cu.j2",
        "wgmma.cu.j2",
        "wgmma8.cu.j2",
    }
    for template in TEMPLATES:
        text = template.read_text()
        assert "{%" not in text
        assert not re.search(r"\b(for|if|while)\s*\(", text)


def test_headers_are_formatted():
    tool = Path(sys.executable).with_name("clang-format")
    if not tool.exists():
        pytest.fail("clang-format is missing: install the extra 'test'")
    command = [str(tool), "--dry-run", "-Werror", *map(str, HEADERS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
