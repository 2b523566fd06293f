"""Find and read config.json and the side files beside it: path -> plain JSON objects. What keys
mean is known elsewhere.
"""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from humming.checkpoints.config.faults import fault, shown
from humming.errors import ModelError

MAX_BYTES = 16 * 2**20
"""The largest public config.json is below 1 MB; anything above this is not a config."""

SIDE_FILES = (
    "quantize_config.json",
    "quant_config.json",
    "quantization_config.json",
    "hf_quant_config.json",
)
"""Where tools put the quantization when not into config.json, in the order in which they are tried.
"""


@dataclass(frozen=True)
class ConfigFile:
    """A model's config: `values` of the file at `path`; `name` is how messages call it, `model` how
    the plan calls the model.
    """

    path: Path
    values: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def model(self) -> str:
        """The folder's name for a config.json, else the file's name without `.json`."""
        if self.path.name == "config.json":
            return self.path.resolve().parent.name or "config"
        return self.path.stem


def read_config(path: str | Path) -> ConfigFile:
    """The config at `path`, a JSON file or a folder that holds config.json. Raises ModelError, one
    sentence, whatever is there.
    """
    given = Path(path)
    if not str(path):
        raise ModelError("`--model` must name a config.json or its folder, but got ''; name one")
    file = given / "config.json" if _mode(given, given) == stat.S_IFDIR else given
    values = read_object(file, given)
    return ConfigFile(file, values)


def side_file(config: ConfigFile) -> tuple[str, dict[str, Any]] | None:
    """(name, object) of the first side file: beside config.json under its own name, beside X.json
    as X.<name>.
    """
    stem = "" if config.path.name == "config.json" else f"{config.path.stem}."
    for name in SIDE_FILES:
        file = config.path.with_name(stem + name)
        if _is_file(file):
            return str(file), read_object(file, file)
    return None


def read_object(file: Path, given: Path) -> dict[str, Any]:
    """The JSON object in `file`; ModelError where it is absent, special, too large, no JSON or no
    object.
    """
    if _mode(file, given) != stat.S_IFREG:
        raise ModelError(f"{file} must be a regular file, but is not; name a config.json")
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{file} cannot be read ({_reason(error)}); name a readable config.json"
        ) from None
    if len(content) > MAX_BYTES:
        raise ModelError(
            f"a config must be at most {MAX_BYTES // 2**20} MiB, but {file} is larger; "
            f"name the model's config.json, not its weights"
        )
    value = _parsed(content, file)
    if not isinstance(value, dict):
        raise fault(str(file), "the whole", "a JSON object", value, "name a model's config.json")
    return value


def _parsed(content: bytes, file: Path) -> Any:
    advice = "name a model's config.json, or download it again"
    if not content.strip():
        raise ModelError(f"{file} must hold a JSON object, but is empty; {advice}")
    try:
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise ModelError(f"{file} must be JSON, but is not ({where}); {advice}") from None
    except UnicodeDecodeError:
        raise ModelError(f"{file} must be JSON in UTF-8, but holds other bytes; {advice}") from None
    except RecursionError:
        raise ModelError(f"{file} must be a config, but nests too deeply; {advice}") from None
    except ValueError:
        raise ModelError(
            f"{file} must be a config, but holds a number too long; {advice}"
        ) from None


def _mode(file: Path, given: Path) -> int:
    """The type bits of `file`; ModelError where it does not exist or cannot be looked at."""
    try:
        return stat.S_IFMT(file.stat().st_mode)
    except FileNotFoundError:
        if file != given:
            raise ModelError(
                f"the folder {given} must hold a config.json, but has none; name one that does"
            ) from None
        raise ModelError(
            f"{given} does not exist; name a config.json or a folder with one"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{shown(str(given))} cannot be read ({_reason(error)}); name a readable config.json"
        ) from None


def _is_file(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:  # a name too long for the file system, a folder that may not be searched
        return False


def _reason(error: OSError | ValueError) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)
