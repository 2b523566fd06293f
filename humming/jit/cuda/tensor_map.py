"""Tensor maps: what the copy engine of Hopper must know of a matrix before it brings tiles of it.

A map is 128 bytes that CUDA's driver encodes on the host; kernels take it by value, so that a
captured graph keeps its own. Which kernel wants which maps is its own module.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from humming.errors import LaunchError
from humming.jit.cuda.driver import driver_function

UINT8, UINT16, INT32, FLOAT32 = 0, 1, 3, 7
"""Element types, as the driver numbers them; floats of 8 and 16 bits are copied as they are."""
NO_SWIZZLE, SWIZZLE_128 = 0, 3
"""How 16-byte chunks are permuted within rows of 128 bytes."""

_ALIGNMENT = 64
PROMOTE_256 = 3  # bytes that L2 brings for a miss


class TensorMap(ctypes.Structure):
    """An encoded map, as a kernel's argument of type None, and what it was made of."""

    _fields_ = (("opaque", ctypes.c_uint64 * 16),)
    address: int
    element: int
    shape: tuple[int, int]
    row_bytes: int
    box: tuple[int, int]
    swizzle: int

    def at(self, address: int) -> TensorMap:
        """The map of a matrix like this one at another address."""
        return tensor_map(address, self.element, self.shape, self.row_bytes, self.box, self.swizzle)


def tensor_map(
    address: int,
    element: int,
    shape: tuple[int, int],
    row_bytes: int,
    box: tuple[int, int],
    swizzle: int,
) -> TensorMap:
    """The map of `shape` (rows, columns) elements at `address`, rows `row_bytes` apart, for tiles
    of `box`. What lies beyond the shape reads as zero.

    Address and `row_bytes` must be multiples of 16. Raises LaunchError where the driver refuses.
    """
    room = ctypes.create_string_buffer(ctypes.sizeof(TensorMap) + _ALIGNMENT)
    made = TensorMap.from_buffer(room, -ctypes.addressof(room) % _ALIGNMENT)
    error = _encoder()(
        ctypes.addressof(made),
        element,
        2,
        address,
        (ctypes.c_uint64 * 2)(shape[1], shape[0]),
        (ctypes.c_uint64 * 1)(row_bytes),
        (ctypes.c_uint32 * 2)(box[1], box[0]),
        (ctypes.c_uint32 * 2)(1, 1),
        0,
        swizzle,
        PROMOTE_256,
        0,
    )
    if error:
        raise LaunchError(
            f"CUDA's driver refused a tensor map of {shape} elements, rows {row_bytes} bytes "
            f"apart, tiles {box}: error {error}"
        )
    made.address, made.element, made.shape = address, element, shape
    made.row_bytes, made.box, made.swizzle = row_bytes, box, swizzle
    return made


@lru_cache(maxsize=1)
def _encoder() -> Any:
    """The driver's function, called by address: its binding does not promise aligned maps."""
    address = driver_function(b"cuTensorMapEncodeTiled")
    word, pointer = ctypes.c_int, ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(word, pointer, word, ctypes.c_uint32, *(pointer,) * 5, *(word,) * 4)
    return kind(int(address))
