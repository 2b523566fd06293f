"""Quantize a weight to int4g128, look at its error, and pack it for the CPU kernels and back."""

import torch

import humming
from humming.quantize import pack, unpack


def main() -> None:
    """Prints what quantizing costs in accuracy and saves in bytes."""
    torch.manual_seed(0)
    w = torch.randn(256, 512)  # [n, k] = [out_features, in_features]

    q = humming.quantize(w, "int4g128")  # one signed 4-bit code a weight, one scale per 128 of k
    print(f"codes {list(q.codes.shape)} in {q.codes.min()} .. {q.codes.max()}")
    print(f"scales {list(q.scales.shape)} {q.scales.dtype}")
    print(f"relative error of the weight: {q.error(w):.3f}")

    packed = pack(q)  # the layout that every CPU kernel reads
    print(f"{w.nbytes} bytes became {packed.nbytes} in layout {packed.layout}")

    back = unpack(packed)
    same = torch.equal(back.codes, q.codes) and torch.equal(back.scales, q.scales)
    print(f"unpack(pack(q)) is q: {same}")


if __name__ == "__main__":
    main()
