"""The kernel that quantizes x: its buffers, and its launch. What codes and scales are is
quantize/activations.py, the source input_source.py; which kernels then multiply them is load.py.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import lru_cache

import torch

from humming.errors import LaunchError, LayoutError
from humming.jit.cache import compiled_source, read_library
from humming.jit.cuda.driver import INT, LONG, POINTER, DeviceFunction
from humming.jit.cuda.input_source import InputRecipe, input_source

__all__ = ["InputQuantizer", "InputRecipe", "QuantizedInput", "input_quantizer"]

_TORCH_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_UNIT_K, _ALIGNMENT, _SCALES_UNIT = 128, 256, 4
_NAME = "humming_quantize_input"
_TYPES = (*(POINTER,) * 4, *(LONG,) * 3, *(INT,) * 2, POINTER)
_LOCK = threading.Lock()


@dataclass(frozen=True)
class QuantizedInput:
    """Rows of x as kernels get them: `codes` uint8 [m, pitch], zero from k on, and `scales` fp32
    [groups, m rounded up to 4], one group where a token has one scale, and one more where it has
    one besides those of its groups. x's own type, [m, k], and no
    scales where the output is numbers."""

    codes: torch.Tensor
    scales: torch.Tensor | None


class InputQuantizer:
    """The kernel of one recipe, on every GPU of this process that asks for it."""

    def __init__(self, recipe: InputRecipe) -> None:
        self.recipe = recipe
        self.source = input_source(recipe)
        self._format = recipe.format
        self._dtype = _TORCH_DTYPES[recipe.dtype]
        self._functions: dict[int, DeviceFunction] = {}
        self._dependent: dict[int, bool] = {}

    def code_bytes(self, m: int, k: int) -> int:
        """Bytes of the codes, or numbers, of m rows."""
        return _whole(m * self._pitch(k), _ALIGNMENT)

    def nbytes(self, m: int, k: int) -> int:
        """Bytes that `enqueue` writes: codes, then scales."""
        if self.recipe.output == "numbers":
            return self.code_bytes(m, k)
        scales = self._scale_rows(k) * _whole(m, _SCALES_UNIT) * 4
        return self.code_bytes(m, k) + _whole(scales, _ALIGNMENT)

    def enqueue(
        self,
        x: torch.Tensor,
        room: torch.Tensor,
        permutation: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
    ) -> QuantizedInput:
        """Enqueues the quantizing of x [m, k] ([m, 2k] with silu_and_mul), rows strided at will, on
        torch's current stream into `room`, uint8 of `nbytes` from a multiple of 16 on. Columns are
        gathered by `permutation` int32 [k] first; a static format takes its `scale`, fp32 [1]."""
        m, k = x.shape[0], x.shape[1] // (2 if self.recipe.silu_and_mul else 1)
        if self.recipe.hadamard and k % self.recipe.hadamard:
            raise LayoutError(
                f"`k % hadamard == 0` must hold, but got k={k}, hadamard={self.recipe.hadamard}"
            )
        if scale is None and not self._format.dynamic:
            raise LayoutError(
                f"x of '{self._format.name}' is quantized by a scale of the layer's, but there is "
                "none; give the weight an input_scale"
            )
        pitch, of_codes = self._pitch(k), self.code_bytes(m, k)
        scales_pitch = _whole(m, _SCALES_UNIT)
        fixed = 0 if scale is None or self._format.dynamic else scale.data_ptr()
        self._launch(x, room.data_ptr(), of_codes, permutation, pitch, scales_pitch, k, fixed)
        codes = room[: m * pitch].view(m, pitch)
        if self.recipe.output == "numbers":
            return QuantizedInput(codes.view(self._dtype)[:, :k], None)
        groups = self._scale_rows(k)
        flat = room[of_codes : of_codes + groups * scales_pitch * 4]
        return QuantizedInput(codes, flat.view(torch.float32).view(groups, scales_pitch))

    def function(self, index: int) -> DeviceFunction:
        """The kernel on GPU `index`, compiled and loaded at the first asking.

        Raises LaunchError where that falls into a graph capture.
        """
        found = self._functions.get(index)
        if found is None:
            if torch.cuda.is_current_stream_capturing():
                raise LaunchError(
                    "a kernel must be loaded before a CUDA graph is captured; call prepare(), or "
                    "the layer once, before the capture"
                )
            with _LOCK:
                found = self._functions.get(index) or self._load_on(index)
        return found

    def _load_on(self, index: int) -> DeviceFunction:
        major, minor = torch.cuda.get_device_capability(index)
        cubin = read_library(compiled_source(self.source, f"sm_{major}{minor}").path)
        self._dependent[index] = major >= 9
        self._functions[index] = function = DeviceFunction(cubin, _NAME, index)
        return function

    def _scale_rows(self, k: int) -> int:
        """Rows of scales: groups, and one of tokens where those are kept apart."""
        apart = self._format.second_scale and self.recipe.output == "nibbles"
        return self._format.groups(k) + int(apart)

    def _pitch(self, k: int) -> int:
        """Bytes from row to row of what is written."""
        if self.recipe.output == "numbers":
            return _whole(k, 8) * 2
        return _whole(k, _UNIT_K) // (2 if self.recipe.output == "nibbles" else 1)

    def _launch(
        self,
        x: torch.Tensor,
        codes: int,
        of_codes: int,
        permutation: torch.Tensor | None,
        pitch: int,
        scales_pitch: int,
        k: int,
        fixed: int,
    ) -> None:
        index, row = x.device.index, x.stride(0) if x.shape[0] > 1 else x.shape[1]
        halves_aligned = not self.recipe.silu_and_mul or k % 8 == 0
        aligned = x.data_ptr() % 16 == 0 and row % 8 == 0 and halves_aligned and permutation is None
        values = (
            x.data_ptr(),
            0 if permutation is None else permutation.data_ptr(),
            codes,
            codes + of_codes if self.recipe.output != "numbers" else 0,
            row,
            pitch,
            scales_pitch,
            k,
            int(aligned),
            fixed,
        )
        function = self.function(index)
        function.launch(
            (x.shape[0], 1),
            int(self.source.static["threads"]),
            values,
            _TYPES,
            dependent=self._dependent[index],
        )


@lru_cache(maxsize=256)
def input_quantizer(recipe: InputRecipe) -> InputQuantizer:
    """The one quantizer of `recipe` in this process."""
    return InputQuantizer(recipe)


def _whole(count: int, unit: int) -> int:
    return -(-count // unit) * unit
