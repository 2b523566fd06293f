"""Turn a torch linear layer into a quantized one, and hold its output against float64."""

import torch

import humming
from humming.reference import matmul_float64


def main() -> None:
    """Prints the layer, and its distance from the exact product of the same quantized weight."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(512, 256, bias=False, dtype=torch.bfloat16)

    layer = humming.HummingLinear.from_linear(linear, "int4g128")
    print(layer)

    q = humming.quantize(linear.weight, "int4g128")
    for m in (1, 17):
        x = torch.randn(m, 512, dtype=torch.bfloat16)
        with torch.inference_mode():
            y = layer(x)
        exact = matmul_float64(x, q)
        error = torch.linalg.norm(y.double() - exact) / torch.linalg.norm(exact)
        print(f"m={m}: {list(y.shape)} {y.dtype}, relative error {float(error):.1e}")


if __name__ == "__main__":
    main()
