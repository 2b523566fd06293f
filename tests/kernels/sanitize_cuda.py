"""A sample of configs of each CUDA family, launched once each: what compute-sanitizer is run on.

    python tests/kernels/sanitize_cuda.py --compile
    compute-sanitizer --tool memcheck python tests/kernels/sanitize_cuda.py
    compute-sanitizer --tool racecheck python tests/kernels/sanitize_cuda.py skinny mma

Arguments are families; without any, all of this GPU. `--compile` only fills the kernel cache, at
full speed. Operands are made on the CPU, so that the tool sees our kernels alone. Numbers are other
tests' business.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from cuda_cases import PLAIN, problem  # noqa: E402
from format_cases import random_weight  # noqa: E402
from gpu_cases import (  # noqa: E402
    KNOBS,
    MMA,
    WARPGROUP,
    compile_problems,
    device,
    dtypes,
    kernel_for,
)
from mma_bytes_cases import FORMATS as CODE_FORMATS  # noqa: E402
from mma_bytes_cases import bytes_configs, bytes_problem, takes  # noqa: E402
from mma_cases import PLAIN_MMA  # noqa: E402
from wgmma8_cases import FORMATS as BYTE_FORMATS  # noqa: E402
from wgmma8_cases import byte_problem, wgmma8_configs  # noqa: E402
from wgmma_cases import PLAIN_WGMMA, wgmma_configs  # noqa: E402

from humming.jit.cuda.load import DequantizeKernel  # noqa: E402
from humming.jit.load import TORCH_DTYPES  # noqa: E402
from humming.quantize import pack  # noqa: E402
from humming.spec.config import DequantizeConfig, KernelConfig  # noqa: E402
from humming.spec.legality import config_violations  # noqa: E402
from humming.spec.problem import Problem  # noqa: E402

FORMATS = ("int4g128", "int3g64", "uint4g128z", "nvfp4", "mxfp4", "fp8e4m3", "int2g128", "int8")
"""One after another for the configs of a family."""


def sample() -> list[tuple[KernelConfig, Problem]]:
    """Configs and problems of all families, those that this GPU runs."""
    dtype = dtypes()[0]
    skinny = [replace(PLAIN, **dict(zip(KNOBS, knobs, strict=True))) for knobs in MMA[::2]]
    skinny += [
        replace(PLAIN, **dict(zip(KNOBS, knobs, strict=True)), warpgroup=1) for knobs in WARPGROUP
    ]
    others = [DequantizeConfig(8, 2, 0), DequantizeConfig(4, 3, 0), PLAIN_MMA]
    others += [replace(PLAIN_MMA, num_stages=4, warps_k=2), replace(PLAIN_MMA, split_k=2)]
    others += [PLAIN_WGMMA, replace(PLAIN_WGMMA, stream_k=1), *wgmma_configs()[::3]]
    found = []
    for index, config in enumerate((*skinny, *others)):
        for number in range(2):
            format = FORMATS[(2 * index + number) % len(FORMATS)]
            if getattr(config, "warpgroup", 0) and number:
                format = "int4g128"
            n, k = ((328, 520), (200, 1300))[number]
            asked = problem(dtype, n, k, config.block_m, format, act_order=index % 4 == 3)
            if not config_violations(config, asked, device()):
                found.append((config, asked))
    for index, format in enumerate(BYTE_FORMATS):
        for config in wgmma8_configs(format)[index % 3 :: 4]:
            asked = byte_problem(format, 328, 520, config.block_m)
            if not config_violations(config, asked, device()):
                found.append((config, asked))
    return found + _of_codes(dtype)


def _of_codes(dtype: str) -> list[tuple[KernelConfig, Problem]]:
    """A config of `mma` for every second format whose codes this GPU multiplies."""
    found = []
    capability = device().compute_capability or (0, 0)
    for index, format in enumerate(CODE_FORMATS[::2]):
        if takes(format, capability):
            configs = bytes_configs(format, capability, dtype)
            found.append((configs[index % len(configs)], bytes_problem(format, dtype, 328, 520)))
    return found


def launch_once(config: KernelConfig, asked: Problem) -> None:
    """One launch with fresh operands; of the family dequantize its own kernel alone."""
    made = torch.Generator().manual_seed(1)
    of, m = TORCH_DTYPES[asked.activation_dtype], min(asked.m, 40)
    q = random_weight(asked.format, asked.n, asked.k, asked.activation_dtype, made, asked.act_order)
    packed, loaded = pack(q, asked.layout, of).to("cuda"), kernel_for(config, asked)
    x = torch.ones(m, asked.k, dtype=of).to("cuda")
    if isinstance(loaded, DequantizeKernel):
        w = loaded._workspace(x, asked.n, asked.k, None)
        loaded._dequantize(loaded.function(0), packed, 0, asked.n, w)
    else:
        loaded.launch(x, packed, None, torch.empty(m, asked.n, dtype=of, device="cuda"))
    torch.cuda.synchronize()


def main(arguments: list[str]) -> None:
    """Prints each launch, so that a report can be read."""
    families = set(arguments) - {"--compile"}
    chosen = [pair for pair in sample() if not families or pair[0].family in families]
    if "--compile" in arguments:
        compile_problems(chosen)
        return
    for config, asked in chosen:
        launch_once(config, asked)
        print(config.family, config, asked.format, asked.n, asked.k, asked.m, flush=True)
    print(f"{len(chosen)} launches", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
