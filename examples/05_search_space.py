"""Write a search space of your own, count it, and see what a typo is answered with."""

import tempfile
from pathlib import Path

from humming.jit.identity import serving_device
from humming.spec.problem import Problem
from search_spaces import context_of, load_space, validate

SPACE = """\
family: cpu
applies_to:
  arch: ["*"]
  formats: [int4g128]
parameters:
  mainloop: [stream]
  code_path: [avx512, avx2, generic]
  block_m: [1]
  block_n: [16, 32, 64]
  block_k: [128]
  unroll: [1, 2, 4]
  prefetch_bytes: [0, 2048]
  split_k: [1]
constraints:
  - expr: code_path != "avx512" or has_avx512
    reason: the CPU has no AVX-512
  - expr: code_path != "avx2" or has_avx2
    reason: the CPU has no AVX2
"""


def main() -> None:
    """Loads the space, prunes it for one problem on this machine, then breaks it."""
    with tempfile.TemporaryDirectory(prefix="humming-example-") as folder:
        path = Path(folder) / "small.yaml"
        path.write_text(SPACE)
        space = load_space(path)
        print(f"{space.name}: {space.size()} combinations for family {space.family}")

        problem = Problem("int4g128", n=4096, k=4096, m=1)
        pruned = space.prune(context_of(problem, serving_device()))
        print(f"worth a trial here: {len(pruned.configs)}")
        for reason, count in pruned.rejected.items():
            print(f"rejected: {count}, as {reason}")

        path.write_text(SPACE.replace("unroll", "unrol"))
        for problem_found in validate(path):
            print(problem_found.replace(f"{folder}/", ""))


if __name__ == "__main__":
    main()
