"""The tensors of a checkpoint's safetensors files, by name: mapped into memory, nothing read before
it is asked for. The doorway to safetensors. What tensors mean is known to the readers.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from humming.checkpoints.config.config_file import read_object
from humming.checkpoints.config.faults import shown
from humming.errors import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


@dataclass(frozen=True)
class TensorInfo:
    """What a file's header says of a tensor."""

    file: str
    dtype: torch.dtype | None
    shape: tuple[int, ...]


class TensorFiles:
    """Tensors of a folder of safetensors files, or of one such file.

    `names` come from the index where there is one, so that a shard is opened only when a tensor of
    it is asked for. With `headers_only` tensors come as meta tensors, with types and shapes alone.
    Raises CheckpointError, one sentence, for whatever is wrong.
    """

    def __init__(self, path: Path, headers_only: bool = False) -> None:
        self.path = path
        self.headers_only = headers_only
        self._open: dict[Path, Any] = {}
        self._keys: dict[Path, frozenset[str]] = {}
        index = _index_of(path)
        self._file_of = self._by_index(index) if index else self._by_headers(_files_of(path))
        self.names = tuple(self._file_of)

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def info(self, name: str) -> TensorInfo:
        """Type and shape, from the header alone; `dtype` is None for a type that torch lacks."""
        file = self._of(name)
        view = self._handle(file).get_slice(name)
        return TensorInfo(str(file), _DTYPES.get(view.get_dtype()), tuple(view.get_shape()))

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor called `name`, a view of the mapped file: do not write to it."""
        info = self.info(name)
        if info.dtype is None:
            kind = self._handle(Path(info.file)).get_slice(name).get_dtype()
            raise CheckpointError(
                f"{info.file}: `{name}` must be of a type that torch has, but is {kind}; "
                f"convert the checkpoint"
            )
        if self.headers_only:
            return torch.empty(info.shape, dtype=info.dtype, device="meta")
        return self._read(Path(info.file), name)

    def numbers(self, name: str) -> list[int]:
        """The tensor called `name`, a short one of integers, also with `headers_only`."""
        found: list[int] = self._read(Path(self.info(name).file), name).flatten().tolist()
        return found

    def _read(self, file: Path, name: str) -> torch.Tensor:
        try:
            tensor: torch.Tensor = self._handle(file).get_tensor(name)
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise _broken(file, error) from None
        return tensor

    def metadata(self, name: str) -> dict[str, str]:
        """What the file that holds the tensor `name` says beside its tensors."""
        return dict(self._handle(self._of(name)).metadata() or {})

    def missing(self, name: str) -> CheckpointError:
        """The one sentence for a tensor that is not there."""
        near = difflib.get_close_matches(name, self.names, 1, 0.6)
        hint = f"; did you mean `{near[0]}`" if near else "; download the checkpoint again"
        return CheckpointError(f"{self.path} must hold a tensor `{name}`, but has none{hint}")

    def _of(self, name: str) -> Path:
        file = self._file_of.get(name)
        if file is None:
            raise self.missing(name)
        handle = self._handle(file)
        if file not in self._keys:
            self._keys[file] = frozenset(handle.keys())
        if name not in self._keys[file]:
            raise CheckpointError(
                f"{file} must hold the tensor `{name}`, as the index says, but has none; "
                f"download the checkpoint again"
            )
        return file

    def _handle(self, file: Path) -> Any:
        if file not in self._open:
            _check_regular(file)
            try:
                self._open[file] = safe_open(str(file), framework="pt", device="cpu")
            except (SafetensorError, OSError, RuntimeError, ValueError) as error:
                raise _broken(file, error) from None
        return self._open[file]

    def _by_index(self, index: Path) -> dict[str, Path]:
        values = read_object(index, index).get("weight_map")
        if not isinstance(values, Mapping) or not values:
            raise CheckpointError(
                f"{index}: `weight_map` must be an object that names each tensor's file, but got "
                f"{shown(values)}; download the checkpoint again"
            )
        files = {entry: self._inside(entry, index) for entry in _strings(values.values(), index)}
        return {name: files[entry] for name, entry in values.items()}

    def _inside(self, entry: str, index: Path) -> Path:
        """The file that an index names. An index is data of strangers: only a file of this folder
        is meant by it. A symbolic link in the folder is the user's own doing."""
        steps = PurePosixPath(entry).parts
        unsafe = PureWindowsPath(entry).is_absolute() or "\\" in entry or "\0" in entry
        if unsafe or not steps or ".." in steps or PurePosixPath(entry).is_absolute():
            raise CheckpointError(
                f"{index}: a tensor's file must lie inside the folder, but got {shown(entry)}; "
                f"this checkpoint is not to be trusted"
            )
        if entry.endswith(PICKLES):
            raise _pickle(self.path, entry)
        return index.parent.joinpath(*steps)

    def _by_headers(self, files: list[Path]) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for file in files:
            for name in self._handle(file).keys():  # noqa: SIM118 (no mapping, this has keys alone)
                if name in found:
                    raise CheckpointError(
                        f"a tensor must lie in one file, but `{name}` is in {found[name].name} and "
                        f"in {file.name} of {self.path}; remove one of them"
                    )
                found[name] = file
        return found


def _index_of(path: Path) -> Path | None:
    if path.is_dir():
        index = path / _INDEX
        return index if index.is_file() else None
    return path if path.name.endswith(".safetensors.index.json") else None


def _files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        if path.suffix in PICKLES:
            raise _pickle(path.parent, path.name)
        return [path]
    if (path / _SINGLE).is_file():
        return [path / _SINGLE]
    files = sorted(path.glob("*.safetensors"))
    if files:
        return files
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES)
    if pickles:
        raise _pickle(path, pickles[0])
    raise CheckpointError(
        f"{path} must hold safetensors files, but has none; name a model's folder with its weights"
    )


def _strings(entries: Iterable[Any], index: Path) -> set[str]:
    found = list(entries)
    wrong = next((entry for entry in found if not isinstance(entry, str)), None)
    if wrong is not None:
        raise CheckpointError(
            f"{index}: `weight_map` must map names to file names, but got {shown(wrong)}; "
            f"download the checkpoint again"
        )
    return set(found)


def _check_regular(file: Path) -> None:
    try:
        regular = file.is_file()
    except (OSError, ValueError):
        regular = False
    if not regular:
        raise CheckpointError(
            f"{file} must be a regular file, but is not there or is none; download the checkpoint "
            f"again"
        )


def _pickle(folder: Path, name: str) -> CheckpointError:
    return CheckpointError(
        f"weights must be safetensors, but {json.dumps(name)} in {folder} is a pickle, which can "
        f"run any code and is never loaded; convert it to safetensors"
    )


def _broken(file: Path, error: Exception) -> CheckpointError:
    with_pickle = _starts_as_pickle(file)
    if with_pickle:
        return _pickle(file.parent, file.name)
    reason = " ".join(str(error).split())[:120]
    return CheckpointError(
        f"{file} must be a whole safetensors file, but is not ({reason}); download it again"
    )


def _starts_as_pickle(file: Path) -> bool:
    """Whether a file that is no safetensors file begins as pickles or torch's zip archives do."""
    try:
        with file.open("rb") as stream:
            start = stream.read(4)
    except OSError:
        return False
    return start.startswith((b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"))
