"""A mixture of experts: quantize, route, multiply, record what falls on which expert, and see which
record would serve it."""

import torch

import humming
from humming.moe.router import RouterRule
from humming.spec.routing import distance

EXPERTS, TOP_K, HIDDEN, WIDTH = 16, 4, 128, 64


def main() -> None:
    """Prints a block's output error and the routing that it was seen to have."""
    torch.manual_seed(0)
    up = torch.randn(EXPERTS, 2 * WIDTH, HIDDEN) / HIDDEN**0.5
    down = torch.randn(EXPERTS, HIDDEN, WIDTH) / WIDTH**0.5
    experts = humming.HummingExperts.from_float(up, down, "int8g32", top_k=TOP_K)
    router = torch.randn(EXPERTS, HIDDEN) / HIDDEN**0.5
    router[0] *= 3  # an expert that is busier than others
    block = humming.HummingMoE(router, experts, RouterRule(TOP_K))
    print(block)

    x = torch.randn(256, HIDDEN)
    with torch.inference_mode(), humming.record_routing(block) as record:
        y = block(x)
    ids, weights = block.choose(x)
    wanted = torch.zeros(256, HIDDEN, dtype=torch.float64)
    for place in range(TOP_K):
        for expert in range(EXPERTS):
            mine = ids[:, place] == expert
            gate, value = (x[mine].double() @ up[expert].double().T).chunk(2, dim=-1)
            part = (torch.nn.functional.silu(gate) * value) @ down[expert].double().T
            wanted[mine] += part * weights[mine, place, None]
    error = torch.linalg.norm(y.double() - wanted) / torch.linalg.norm(wanted)
    print(f"relative error of int8g32: {float(error):.1e}")

    print(f"recorded: {record.routing}")
    known = ("uniform", "zipf0.3", "zipf1.2")
    nearest = min(known, key=lambda name: distance(name, record.routing, EXPERTS))
    print(f"of {', '.join(known)} the nearest is {nearest}")

    # One projection alone: rows go to experts by their ids, as they stand on the device.
    single = humming.moe_gemm(x, experts.up.packed(), ids=ids)
    half = experts.up.packed().slice(0, EXPERTS // 2)
    rank = humming.moe_gemm(x, half, ids=ids)  # a rank's half: the others' rows are zero
    assert bool((rank[ids >= EXPERTS // 2] == 0).all())
    print(f"one projection: {list(single.shape)}")


if __name__ == "__main__":
    main()
