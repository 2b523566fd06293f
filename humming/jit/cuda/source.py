"""Render the sources of the CUDA families: constants and includes into a template, never code.

CPU kernels, and the door `render` to both, are jit/source.py; compiling is jit/nvrtc.py.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from humming.errors import FormatError, LegalityError
from humming.jit.cuda.weight_constants import CXX_TYPES, weight_constants
from humming.jit.source import KERNELS_DIR, KernelSource, headers_of
from humming.spec.config import (
    CpuConfig,
    KernelConfig,
    MmaConfig,
    ScaledMmConfig,
    SkinnyConfig,
    Wgmma8Config,
    WgmmaConfig,
    config_to_dict,
)
from humming.spec.layouts import CUDA_A8_LAYOUT, CUDA_LAYOUT, LAYOUTS
from humming.spec.legality import mma_smem_bytes, skinny_smem_bytes, wgmma_smem_bytes
from humming.spec.legality.skinny import x_by_element
from humming.spec.problem import Problem

INCLUDE_DIR = KERNELS_DIR / "cuda" / "include"


def render_cuda(config: KernelConfig, problem: Problem) -> KernelSource:
    """The source of `config` for `problem`'s dtypes; sizes, strides and bias stay run-time
    arguments.

    Raises FormatError where the layout lacks the format, LegalityError for another activation or a
    config of another kind of device.
    """
    if isinstance(config, (Wgmma8Config, ScaledMmConfig)):
        from humming.jit.cuda.byte_source import render_bytes  # it builds on this module

        return render_bytes(config, problem)
    if not LAYOUTS[CUDA_LAYOUT].holds(problem.format):
        raise FormatError(
            f"family '{config.family}' renders {LAYOUTS[CUDA_LAYOUT].holds_what}, but got "
            f"'{problem.format}'"
        )
    if isinstance(config, MmaConfig) and problem.layout == CUDA_A8_LAYOUT:
        from humming.jit.cuda.mma_source import render_mma_bytes  # it builds on this module

        return render_mma_bytes(config, problem)
    _check_numbers(config, problem)
    static: dict[str, Any] = {
        **config_to_dict(config),
        "format": problem.format,
        "input_recipe": input_recipe(problem),
        "activation_dtype": problem.activation_dtype,
        "output_dtype": problem.output_dtype,
        **weight_constants(problem),
    }
    picks: dict[str, Any] = {"activation": CXX_TYPES[problem.activation_dtype]}
    experts = problem.op == "moe"
    picks |= {"grouped": int(experts), "entry": config.family + ("_experts" if experts else "")}
    if experts:
        static["op"] = problem.op
    if isinstance(config, MmaConfig):
        static["smem_bytes"] = mma_smem_bytes(config, problem)
    elif isinstance(config, WgmmaConfig):
        static["smem_bytes"] = wgmma_smem_bytes(config, problem)
    elif isinstance(config, SkinnyConfig):
        static["smem_bytes"] = skinny_smem_bytes(config, problem)
        static["x_by_element"] = int(x_by_element(problem))
        picks |= {
            "plan": "WarpgroupPlan" if config.warpgroup else "SkinnyPlan",
            "plan_header": "warpgroup_plan" if config.warpgroup else "skinny_plan",
            "mainloop_header": "skinny_warpgroup" if config.warpgroup else "skinny_block",
            "weights_header": "weights_ring" if config.num_stages else "weights_registers",
        }
        if config.walk:
            picks |= {"entry": "skinny_walk", "mainloop_header": "skinny_walk"}
    text = environment().get_template(f"{config.family}.cu.j2").render(**static, **picks)
    return KernelSource(
        family=config.family,
        text=text,
        language="cuda",
        # sm_90a: what wgmma needs, and what runs on compute capability 9.0 alone
        flags=("arch-specific",) if static.get("warpgroup") or static.get("warpgroups") else (),
        headers=headers_of(text, INCLUDE_DIR),
        static=static,
    )


def _check_numbers(config: KernelConfig, problem: Problem) -> None:
    """Refuses what families do not render whose products are of 16 bits."""
    if problem.layout == CUDA_A8_LAYOUT:
        raise FormatError(
            f"family '{config.family}' reads layout '{CUDA_LAYOUT}', but got '{problem.layout}'"
        )
    if isinstance(config, CpuConfig) or problem.activation_dtype not in CXX_TYPES:
        raise LegalityError(
            f"CUDA kernels take {' or '.join(CXX_TYPES)} activations and configs of CUDA "
            f"families, but got {problem.activation_dtype} and family '{config.family}'"
        )


def input_recipe(problem: Problem, nibbles: bool = False) -> dict[str, str] | None:
    """What a call makes of x, as input_source.InputRecipe takes it; None where x stays as it is.
    `nibbles`: products of 4 bits."""
    activation = problem.quant.activation
    if activation is None:
        return None
    output = "numbers"
    if problem.layout == CUDA_A8_LAYOUT:
        output = "nibbles" if nibbles else "bytes"
    return {"activation": activation.name, "dtype": problem.activation_dtype, "output": output}


def read_probe_source() -> KernelSource:
    """The read probe that measures a GPU's memory bandwidth."""
    text = environment().get_template("read_probe.cu.j2").render()
    return KernelSource(
        family="read_probe",
        text=text,
        language="cuda",
        headers=headers_of(text, INCLUDE_DIR),
        static={"family": "read_probe"},
    )


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The templates of this folder of kernels."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(KERNELS_DIR) / "cuda"),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C++, not HTML
        keep_trailing_newline=True,
    )
