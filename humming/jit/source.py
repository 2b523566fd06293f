"""Render kernel sources: the doorway of jinja2. Templates get constants and includes, never
code."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from humming.jit.cpu_types import cpu_picks
from humming.spec.config import BlasConfig, CpuConfig, KernelConfig, config_to_dict
from humming.spec.device import CODE_PATH_FLAGS
from humming.spec.problem import Problem

KERNELS_DIR = Path(__file__).parents[1] / "kernels"
INCLUDE_DIR = KERNELS_DIR / "cpu" / "include"
_INCLUDE = re.compile(r'^#include "(humming/[^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class KernelSource:
    """One source ready to compile.

    `headers` are the (name, SHA-256) of every header that `text` includes, directly or not; `flags`
    are compiler flags beyond the usual ones; `static` is what was rendered into the constants.
    """

    family: str
    text: str
    language: str = "c++"
    flags: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    static: Mapping[str, Any] = field(default_factory=dict)


def render(config: KernelConfig, problem: Problem) -> KernelSource:
    """The source of `config` for `problem`'s format and dtypes; m, n, k, bias and threads stay
    run-time arguments.

    Problems that differ in shape alone share one source.
    """
    if not isinstance(config, (CpuConfig, BlasConfig)):
        from humming.jit.cuda.source import render_cuda  # it builds on this module

        return render_cuda(config, problem)
    static = {
        **config_to_dict(config),
        "format": problem.format,
        "activation_dtype": problem.activation_dtype,
        "output_dtype": problem.output_dtype,
    }
    picks = cpu_picks(problem, config.code_path)
    template = "dequantize.cpp.j2" if isinstance(config, BlasConfig) else "gemm.cpp.j2"
    if problem.op == "moe":
        template, static = "experts.cpp.j2", {**static, "op": "moe"}
    return _source(template, config.code_path, static, **picks)


def pool_source() -> KernelSource:
    """The thread pool: one library a process, for any CPU."""
    return _source("pool.cpp.j2", "generic", {"family": "cpu"})


def launcher_source() -> KernelSource:
    """The launcher of recorded calls on GPUs: one library a process, for any CPU."""
    return KernelSource("launch", (KERNELS_DIR / "launch" / "launcher.cpp").read_text("utf-8"))


def read_probe_source(code_path: str) -> KernelSource:
    """The read probe that measures memory bandwidth, with the vectors of `code_path`."""
    return _source("read_probe.cpp.j2", code_path, {"family": "cpu", "code_path": code_path})


def _source(
    template: str, code_path: str, static: dict[str, Any], **picks: str | int
) -> KernelSource:
    text = _environment().get_template(template).render(**static, **picks)
    return KernelSource(
        family=static["family"],
        text=text,
        flags=tuple(_compiler_flag(flag) for flag in CODE_PATH_FLAGS[code_path]),
        headers=headers_of(text, INCLUDE_DIR),
        static={**static, "code_path": code_path},
    )


def _compiler_flag(cpu_flag: str) -> str:
    """`-m...` for a flag as /proc/cpuinfo spells it: avx512_bf16 is -mavx512bf16 to compilers."""
    return f"-m{cpu_flag.replace('_', '')}"


def companions(source: KernelSource) -> tuple[KernelSource, ...]:
    """Sources of the kernels that a call of `source` launches before it: those that quantize x."""
    recipe = source.static.get("input_recipe")
    if recipe is None:
        return ()
    from humming.jit.cuda.input_source import InputRecipe, input_source  # it builds on this module

    return (input_source(InputRecipe(**recipe)),)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(KERNELS_DIR / "cpu"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C++, not HTML
        keep_trailing_newline=True,
    )


def headers_of(text: str, include_dir: Path) -> tuple[tuple[str, str], ...]:
    """(name, SHA-256) of every header under `include_dir` that `text` includes, directly or not."""
    found: dict[str, str] = {}
    waiting = _INCLUDE.findall(text)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _sha256(include_dir / name)
            waiting += _included_by(include_dir / name)
    return tuple(sorted(found.items()))


@lru_cache(maxsize=256)
def _included_by(header: Path) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(header.read_text()))


@lru_cache(maxsize=256)
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
