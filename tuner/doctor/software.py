"""Checks of software: names that clash, the driver, GPUs, torch, compilers, and one kernel that is
run. Storage is storage.py."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from importlib import metadata
from pathlib import Path

import torch

from humming.errors import CompileError, CompilerNotFoundError, HummingError, UntunedWarning
from humming.gemm import gemm
from humming.jit.compiler import compile_source, find_compiler
from humming.jit.detect import cuda_devices
from humming.jit.identity import cuda_driver
from humming.jit.nvrtc import find_nvrtc
from humming.jit.source import read_probe_source
from humming.ledger import uncounted
from humming.quantize import quantize
from humming.reference import error_bound, matmul_float64
from tuner.doctor.finding import Finding, Surroundings, fail, failed_by, ok
from tuner.worker.bench import torch_device

OURS = "humming-tune"
TOP_LEVEL = ("humming", "search_spaces", "tuner")
OLDEST_TORCH = (2, 7)
OLDEST_DRIVER = {13: 580, 12: 525, 11: 450}
"""CUDA's major version -> the oldest driver that runs what it builds."""

_PCI = Path("/sys/bus/pci/devices")
_NVIDIA = "0x10de"
_DISPLAY_CLASSES = ("0x0300", "0x0302")


def import_names(_: Surroundings) -> Finding:
    """Whether another distribution brings a package of our names."""
    owners = metadata.packages_distributions()
    for name in TOP_LEVEL:
        others = sorted(set(owners.get(name, ())) - {OURS, OURS.replace("-", "_")})
        if others:
            other = others[0]
            return fail(
                f"'{name}' is also a package of the distribution {other}",
                f"pip uninstall -y {other} && pip install --force-reinstall --no-deps {OURS}",
            )
    return ok(f"no other distribution brings {', '.join(TOP_LEVEL)}")


def driver(_: Surroundings) -> Finding:
    """The NVIDIA driver, where there is hardware for it."""
    version, cards = cuda_driver(), nvidia_cards()
    if not version:
        if cards:
            return fail(
                f"{cards} NVIDIA card(s) on the PCI bus, but no driver",
                "install NVIDIA's driver, 580 or newer, then reboot; in a container, start it with "
                "--gpus all",
            )
        return ok("no NVIDIA hardware; the CPU serves")
    newest = newest_cuda(version)
    if newest is None:
        return fail(
            f"NVIDIA driver {version} is older than {OLDEST_DRIVER[12]}",
            f"install NVIDIA's driver, {OLDEST_DRIVER[12]} or newer (580 for CUDA 13)",
        )
    return ok(f"NVIDIA driver {version}, which runs CUDA {newest}")


def gpus(_: Surroundings) -> Finding:
    """What CUDA sees, where there is a driver."""
    version = cuda_driver()
    if not version:
        return ok("not asked for, as there is no NVIDIA driver")
    if importlib.util.find_spec("cuda") is None:
        return fail("cuda-python is not installed", f"pip install '{OURS}[{_extra(version)}]'")
    found = cuda_devices()
    if not found:
        return fail(
            "there is a driver, but CUDA sees no GPU",
            "unset CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all",
        )
    return ok(", ".join(f"cuda:{i} {gpu.name} ({gpu.arch})" for i, gpu in enumerate(found)))


def torch_build(_: Surroundings) -> Finding:
    """torch's version, and its CUDA build against the driver."""
    version, build, runs = torch.__version__, torch.version.cuda, cuda_driver()
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if numbers < OLDEST_TORCH:
        return fail(f"torch {version} is older than 2.7", "pip install 'torch>=2.7'")
    if not runs:
        return ok(f"torch {version}" + (f", CUDA {build} unused" if build else ", CPU build"))
    major = newest_cuda(runs)
    if build is None:
        return fail(
            f"torch {version} is a CPU build, but driver {runs} is here",
            f"install a build of torch for CUDA {major or 12} (pytorch.org says where it is)",
        )
    if major is not None and int(build.split(".")[0]) > major:
        return fail(
            f"torch {version} is built for CUDA {build}, but driver {runs} runs CUDA {major}",
            f"install NVIDIA's driver, {OLDEST_DRIVER.get(int(build.split('.')[0]), 580)} or "
            f"newer, or a build of torch for CUDA {major}",
        )
    if not torch.cuda.is_available():
        return fail(
            f"torch {version} (CUDA {build}) says that CUDA is not available",
            'python -c "import torch; torch.zeros(1).cuda()" tells why',
        )
    return ok(f"torch {version}, CUDA {build}")


def cxx_compiler(_: Surroundings) -> Finding:
    """A C++ compiler that compiles."""
    try:
        compiler = find_compiler()
        compile_source(read_probe_source("generic"), compiler)
    except CompilerNotFoundError as error:
        return fail(str(error).split(";")[0], f"apt-get install g++, or pip install '{OURS}[zig]'")
    except CompileError as error:
        text = " ".join(str(error).split())[:300]
        return fail(text, "apt-get install --reinstall g++, or name another with HUMMING_CXX")
    return ok(f"{compiler.path}: {compiler.version}")


def nvrtc(s: Surroundings) -> Finding:
    """NVRTC, where there is a driver, and whether the driver runs what it compiles."""
    runs = cuda_driver()
    try:
        version = find_nvrtc().version
    except CompilerNotFoundError as error:
        if not runs and s.device.kind == "cpu":
            return ok("not installed, and not needed without a GPU")
        return fail(str(error).split(";")[0], f"pip install '{OURS}[{_extra(runs)}]'")
    newest = newest_cuda(runs) if runs else None
    if newest is not None and int(version.split(".")[0]) > newest:
        return fail(
            f"NVRTC {version} compiles for newer drivers than {runs}, which runs CUDA {newest}",
            f"pip install '{OURS}[{_extra(runs)}]' after pip uninstall -y nvidia-cuda-nvrtc",
        )
    return ok(f"NVRTC {version}")


def kernel(s: Surroundings) -> Finding:
    """One small product, compiled and run as a layer would, against float64."""
    where = torch_device(s.device)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 256, generator=draw).to(torch.bfloat16).to(where)
    weight = quantize(torch.randn(48, 256, generator=draw).to(torch.bfloat16), "int4g128")
    weight = weight.to(where)
    try:
        with uncounted(), torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UntunedWarning)  # it is no layer of the user's
            out = gemm(x, weight)
    except HummingError as error:
        return failed_by(error)
    wrong = (out.double() - matmul_float64(x, weight)).abs()
    if bool((wrong > error_bound(x, weight, torch.bfloat16)).any()) or bool(wrong.isnan().any()):
        return fail(
            f"a small product on {s.device.name} has wrong numbers",
            "remove the folder of compiled kernels, then run humming-tune doctor again",
        )
    return ok(f"a small product on {s.device.name} is right")


def nvidia_cards() -> int:
    """How many NVIDIA display or compute cards the PCI bus shows; 0 where it cannot be read."""
    found = 0
    for folder in _PCI.glob("*"):
        try:
            vendor = (folder / "vendor").read_text().strip()
            kind = (folder / "class").read_text().strip()
        except OSError:
            continue
        found += vendor == _NVIDIA and kind.startswith(_DISPLAY_CLASSES)
    return found


def newest_cuda(driver_version: str) -> int | None:
    """The newest major version of CUDA that a driver runs; `driver_version` is "580.65.06", or
    "CUDA 13.0" where only that is known. None where it is too old for any."""
    major = int(re.findall(r"\d+", driver_version)[0])
    if driver_version.startswith("CUDA"):
        return major
    return next((cuda for cuda, oldest in OLDEST_DRIVER.items() if major >= oldest), None)


def _extra(driver_version: str) -> str:
    """The extra of pyproject.toml that fits a driver."""
    newest = newest_cuda(driver_version) if driver_version else None
    return "cu12" if newest is not None and newest < 13 else "cu13"


def python_version(_: Surroundings) -> Finding:
    """The interpreter that runs this."""
    return ok(f"Python {sys.version.split()[0]} at {sys.executable}")
