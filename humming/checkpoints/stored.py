"""StoredModule: one module's tensors, checked as they are read; a reader's only way to a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from humming.checkpoints.config.source import Source
from humming.checkpoints.tensor_files import TensorFiles
from humming.errors import CheckpointError
from humming.quantize.tensor import QuantizedTensor

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_ELEMENTS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class StoredModule:
    """The tensors whose names begin with `name` and a dot; `source` is the checkpoint's
    quantization config, `dtype` the type in which the model computes.
    """

    name: str
    files: TensorFiles
    source: Source
    dtype: torch.dtype

    def at(self, name: str) -> StoredModule:
        """Another module of the same checkpoint."""
        return replace(self, name=name)

    def path(self, suffix: str) -> str:
        """The full name of a tensor of this module; "" means the module's own name."""
        return f"{self.name}.{suffix}" if suffix else self.name

    def has(self, suffix: str) -> bool:
        """Whether the checkpoint has that tensor."""
        return self.path(suffix) in self.files

    def first(self, *suffixes: str) -> str | None:
        """The first of `suffixes` that the checkpoint has."""
        return next((suffix for suffix in suffixes if self.has(suffix)), None)

    def shape(self, suffix: str) -> tuple[int, ...]:
        """A tensor's shape, from the header alone."""
        return self.files.info(self.path(suffix)).shape

    def tensor(
        self,
        suffix: str,
        dtypes: Sequence[torch.dtype] = FLOATS,
        shape: Sequence[int | None] | None = None,
    ) -> torch.Tensor:
        """The tensor, of one of `dtypes` and, where given, of `shape` (None: any size).

        A view of the mapped file. Raises CheckpointError where it is missing or another.
        """
        path = self.path(suffix)
        info = self.files.info(path)
        fits = shape is None or (
            len(shape) == len(info.shape)
            and all(want in (None, got) for want, got in zip(shape, info.shape, strict=True))
        )
        if info.dtype not in dtypes or not fits or 0 in info.shape:
            kinds = " or ".join(_short(dtype) for dtype in dtypes)
            sizes = "" if shape is None else f" {_sizes(shape)}"
            raise CheckpointError(
                f"{info.file}: `{path}` must be {kinds}{sizes}, but is "
                f"{_short(info.dtype) if info.dtype else 'of another type'} {list(info.shape)}; "
                f"its config or the file is wrong"
            )
        return self.files.tensor(path)

    def optional(
        self,
        suffix: str,
        dtypes: Sequence[torch.dtype] = FLOATS,
        shape: Sequence[int | None] | None = None,
    ) -> torch.Tensor | None:
        """As `tensor`, or None where the checkpoint has none."""
        return self.tensor(suffix, dtypes, shape) if self.has(suffix) else None

    def scales(
        self,
        suffix: str,
        dtypes: Sequence[torch.dtype] = FLOATS,
        shape: Sequence[int | None] | None = None,
    ) -> torch.Tensor:
        """As `tensor`, all finite."""
        return self.finite(suffix, self.tensor(suffix, dtypes, shape))

    def finite(self, suffix: str, part: torch.Tensor) -> torch.Tensor:
        """`part` of the tensor; CheckpointError, by its name, where it holds NaN or infinity."""
        if not part.is_meta and not all(
            bool(torch.isfinite(some.to(torch.float32)).all())
            for some in torch.split(part.reshape(-1), _ELEMENTS_AT_ONCE)
        ):
            raise CheckpointError(
                f"{self.files.path}: `{self.path(suffix)}` must be finite, but holds NaN or "
                f"infinity; the checkpoint is damaged or was made of a damaged model"
            )
        return part

    def bias(self, n: int) -> torch.Tensor | None:
        """The module's float `bias[n]`, finite, or None."""
        return self.scales("bias", FLOATS, (n,)) if self.has("bias") else None

    def fault(self, rule: str, value: object, advice: str) -> CheckpointError:
        """One sentence on this module: `rule`, but got `value`; `advice`."""
        return CheckpointError(f"{self.files.path}: {self.name}: {rule}, but got {value}; {advice}")

    def checked(self, weight: QuantizedTensor) -> QuantizedTensor:
        """`weight`, unless a scale of 0 hides codes that are not 0: a sign of damage."""
        if weight.scales.is_meta or not bool((weight.scales.to(torch.float32) == 0).any()):
            return weight
        n, k = weight.shape
        step = max(1, _ELEMENTS_AT_ONCE // k)
        unscaled = replace(weight, scales=torch.ones(weight.scales.shape).to(weight.scales.dtype))
        for low in range(0, n, step):
            high = min(low + step, n)
            values, whole = (part.slice_rows(low, high).dequantize() for part in (unscaled, weight))
            if bool(((whole == 0) & (values != 0)).any()):
                raise self.fault(
                    "a scale must not be 0 where codes are not",
                    "a scale of 0",
                    "the checkpoint is damaged or was made of a damaged model",
                )
        return weight


def _sizes(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('..' if size is None else str(size) for size in shape)}]"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
