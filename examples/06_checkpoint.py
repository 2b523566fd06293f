"""Inspect a quantized checkpoint, and read its layers: one, several as one, a rank's share."""

import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

import humming
import humming.checkpoints
from tuner import inspecting

QKV = [f"model.layers.0.self_attn.{part}_proj" for part in "qkv"]


def write_checkpoint(folder: Path) -> None:
    """A checkpoint as public tools write them: fp8 weights, each with one scale."""
    config = {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}
    (folder / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16", **config}))
    tensors = {}
    for name, n in zip(QKV, (256, 64, 64), strict=True):
        w = torch.randn(n, 256)
        scale = w.abs().max() / 448
        tensors[f"{name}.weight"] = (w / scale).to(torch.float8_e4m3fn)
        tensors[f"{name}.weight_scale"] = scale.float()
    save_file(tensors, folder / "model.safetensors")


def main() -> None:
    """Prints what a checkpoint holds, and that a fused layer keeps the scales of its parts."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder))

        found = inspecting.inspect(Path(folder))  # from headers alone, as humming-tune inspect
        totals = found.totals
        print(f"{found.tool}: {totals['layers']} layers, {totals['bits_per_weight']} bits a weight")

        checkpoint = humming.checkpoints.open(folder)
        for stored in checkpoint:  # one layer is read at a time
            print(f"{stored.name}: {stored.format} {list(stored.shape)}")

        fused = checkpoint.layer(QKV)  # scales of tensors become those of rows, the same numbers
        share = checkpoint.layer(QKV, rows=(1, 2))  # rank 1 of 2
        print(f"fused: {fused.format} {list(fused.shape)}, a rank's share {list(share.shape)}")

        layer = humming.HummingLinear.from_checkpoint(folder, QKV)
        x = torch.randn(2, 256, dtype=torch.bfloat16)
        with torch.inference_mode():
            y = layer(x)
        exact = x.double() @ fused.dequantized().T
        error = torch.linalg.norm(y.double() - exact) / torch.linalg.norm(exact)
        print(f"{list(y.shape)} {y.dtype}, relative error {float(error):.1e}")


if __name__ == "__main__":
    main()
