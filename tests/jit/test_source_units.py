"""The hash of each unit of kernel sources covers all that its kernels include, and nothing that
others alone do."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from humming.jit.source import KERNELS_DIR, companions, pool_source, render
from humming.jit.source_units import source_hash, unit_files
from humming.spec.config import config_from_dict
from humming.spec.device import CODE_PATH_FLAGS, Device
from humming.spec.layouts import layout_for
from humming.spec.legality import config_violations, families_for
from humming.spec.problem import Problem
from humming.spec.sources import WHOLE, parts_of, units_of
from search_spaces.load import load_spaces
from search_spaces.select import select
from tests.gpus import gpu

TRIES = 120
SPACES = load_spaces()
FORMATS = ("int4g128", "uint4g64z", "mxfp4", "int8-int8", "fp8e4m3-fp8e4m3", "mxfp4-fp8e4m3")
CPU = Device("cpu", "Some CPU", "x86_64", 2**25, isa=CODE_PATH_FLAGS["avx512_bf16"], threads=4)
ON_HOPPER = {"skinny", "mma", "mma_bytes", "wgmma", "wgmma8", "dequantize", "scaled_mm"}
ON_HOPPER |= {"skinny_experts", "mma_experts", "wgmma_experts"}
EXPERTS = {"op": "moe", "experts": 8, "top_k": 2, "routing": "uniform"}


def problems(device: Device) -> list[Problem]:
    shape = {"n": 512, "k": 1024, "m": 64}
    return [
        Problem(format, **shape, layout=layout_for(device, format, op), **more)
        for format in FORMATS
        for op, more in (("dense", {}), ("moe", EXPERTS))
    ]


def configs(family: str, problem: Problem, device: Device, draw: random.Random):
    """A few legal configs of the space, drawn evenly."""
    space = select(SPACES, family, device, problem.format, problem.op)
    for _ in range(TRIES):
        values = {name: draw.choice(choices) for name, choices in space.parameters.items()}
        config = config_from_dict({"family": family, **values})
        if not config_violations(config, problem, device):
            yield config


@pytest.mark.parametrize("device", [CPU, gpu((9, 0))], ids=["cpu", "gpu"])
def test_kernels_include_nothing_but_files_of_their_units(device):
    folder, draw, seen = KERNELS_DIR / device.kind, random.Random(0), set()
    for problem in problems(device):
        for family in families_for(problem, device):
            units = units_of(family, problem)
            covered = {path for unit in units for path in unit_files(folder, unit)}
            for config in configs(family, problem, device, draw):
                source = render(config, problem)
                for one in (source, *companions(source)):
                    included = {folder / "include" / name for name, _ in one.headers}
                    assert included <= covered, (units, included - covered)
                seen.add(units[0])
    every = {"cpu", "cpu_experts", "blas"} if device == CPU else ON_HOPPER
    assert seen >= every, every - seen


def test_the_pool_is_a_unit_of_every_kernel_of_a_cpu():
    (file,) = unit_files(KERNELS_DIR / "cpu", "pool")
    assert file.read_text("utf-8").splitlines()[0] == pool_source().text.splitlines()[0]
    assert all("pool" in units_of(family, problems(CPU)[0]) for family in ("cpu", "blas"))


@pytest.mark.parametrize(
    ("file", "changed"),
    [
        ("cuda/wgmma8.cu.j2", {"wgmma8", "wgmma8_experts"}),
        ("cuda/include/humming/mainloop/quantize_input.cuh", {"quantize_input"}),
        ("cuda/include/humming/memory/weights_ring.cuh", {"skinny", "skinny_experts"}),
        ("cuda/include/humming/entry/mma_experts.cuh", {"mma_experts"}),
        ("cpu/include/humming/gemm.h", {"cpu", "cpu_experts"}),
        ("cpu/constants.j2", {"cpu", "cpu_experts"}),
        ("cpu/pool.cpp.j2", {"pool"}),
    ],
)
def test_an_edit_changes_the_units_that_take_it_and_no_other(tmp_path, file, changed):
    kernels = tmp_path / "kernels"
    shutil.copytree(KERNELS_DIR, kernels)
    kind = Path(file).parts[0]
    before = parts_of(source_hash(kind, kernels))
    assert before == parts_of(source_hash(kind))
    edited = shutil.copytree(kernels, tmp_path / "edited")
    with (edited / file).open("a") as writing:
        writing.write("// one more line\n")
    after = parts_of(source_hash(kind, edited))
    assert {unit for unit in before if before[unit] != after[unit]} == {*changed, WHOLE}


def test_the_text_is_stable_and_of_one_kind():
    assert source_hash("cpu") == source_hash("cpu")
    assert parts_of(source_hash("cpu")).items().isdisjoint(parts_of(source_hash("cuda")).items())
    assert len(parts_of(source_hash("cpu"))[WHOLE]) == 32
