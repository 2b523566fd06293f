"""Writes tests/checkpoints/data: tiny checkpoints made by public libraries, and hashes of the
weights that those take from them, so that readers are tested where the libraries are not installed.

    python -m tests.checkpoints.libraries.write_fixtures
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from tests.checkpoints.libraries import (
    by_compressed_tensors,
    by_floats,
    by_hqq,
    by_integers,
    by_models,
    by_torchao,
)
from tests.checkpoints.libraries.made import Made
from tests.checkpoints.making import write_checkpoint

DATA = Path(__file__).parents[1] / "data"
SCHEMES = ("int3", "uint4_groups", "int8", "w8a8_zero_points", "w4a8", "fp8_tensor", "fp8_block",
           "nvfp4", "mxfp4", "mxfp6", "mxfp8")  # fmt: skip
HQQ = ("int4", "int3", "int1")
TORCHAO = ("int8_zero_points", "int4_groups", "fp8_block", "mxfp4", "nvfp4_swizzled")
TWO = ("q_proj", "down_proj")


def main() -> None:
    """One folder a library."""
    _write("compressed-tensors", by_compressed_tensors.make(19, 32, 1, SCHEMES))
    _write("hqq", _some(by_hqq.make(16, 32, 2), HQQ))
    _write("torchao", _some(by_torchao.make(16, 32, 3), TORCHAO))
    for version, bits in ((1, 4), (2, 3), (1, 2)):
        made = by_integers.by_gptqmodel(32, 64, 32, bits, True, version)
        _write(f"gptq-{bits}bits-v{version}", made)
    for packing in ("gemm", "gemv"):
        _write(f"awq-{packing}", by_integers.by_auto_awq(32, 64, 32, packing))
    _write("autoround", by_integers.by_auto_round(32, 64, 32, 4, "auto_round", False))
    _write("autoround-mxfp4", by_floats.by_auto_round_mx(24, 64, 4))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("NVFP4", "MXFP8"):
            made = by_models.by_modelopt(Path(folder) / name, f"{name}_DEFAULT_CFG", 32, 32)
            _write(f"modelopt-{name.lower()}", _in_bf16(_some(made, TWO)))
        made = by_models.by_quark(
            Path(folder) / "quark",
            lambda specs: specs.Uint4PerGroupSpec(
                symmetric=False, ch_axis=-1, group_size=32, scale_type="float", is_dynamic=False
            ).to_quantization_spec(),
            32,
        )
        _write("quark-uint4", _some(made, TWO))


def digest(weight: torch.Tensor) -> str:
    """The SHA-256 of a weight's bytes, of -0 as of 0: libraries differ there."""
    stored = (weight + 0.0).contiguous().view(torch.uint8)
    return hashlib.sha256(stored.numpy().tobytes()).hexdigest()


def _some(made: Made, ends: tuple[str, ...]) -> Made:
    """The modules whose names end so, as the files are to be small."""
    names = tuple(name for name in made.expected if name.endswith(ends))
    tensors = {name: tensor for name, tensor in made.tensors.items() if name.startswith(names)}
    expected = {name: made.expected[name] for name in names}
    return Made(tensors, made.quantization, expected, made.metadata)


def _in_bf16(made: Made) -> Made:
    """In the model's own type: in fp32 the library rounds once on the way."""
    expected = {name: weight.to(torch.bfloat16) for name, weight in made.expected.items()}
    return replace(made, expected=expected)


def _write(name: str, made: Made) -> None:
    folder = write_checkpoint(DATA / name, made.tensors, made.quantization, metadata=made.metadata)
    expected = {
        module: {"dtype": str(weight.dtype).removeprefix("torch."), "sha256": digest(weight)}
        for module, weight in made.expected.items()
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1))


if __name__ == "__main__":
    main()
