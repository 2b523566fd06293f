"""Convert every linear layer of a model that fits, and compare the outputs."""

import copy

import torch

import humming


class Block(torch.nn.Module):
    """A gated MLP and a head, as a language model has them."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(256, 512, bias=False)
        self.gate = torch.nn.Linear(256, 512, bias=False)
        self.down = torch.nn.Linear(512, 256, bias=False)
        self.lm_head = torch.nn.Linear(256, 100, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[m, 256] -> [m, 100]."""
        hidden = torch.nn.functional.silu(self.gate(x)) * self.up(x)
        return self.lm_head(self.down(hidden))


def main() -> None:
    """Prints the converted model; lm_head stays as it is unless `skip` says otherwise."""
    torch.manual_seed(0)
    model = Block().eval()
    quantized = humming.convert(copy.deepcopy(model), "int4g128", skip=("lm_head",))
    print(quantized)

    x = torch.randn(4, 256)
    with torch.inference_mode():
        before, after = model(x), quantized(x)
    error = torch.linalg.norm(after - before) / torch.linalg.norm(before)
    print(f"relative difference of the outputs: {float(error):.3f}")


if __name__ == "__main__":
    main()
