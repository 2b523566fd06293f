"""Space files -> SearchSpace, which is made here alone. Checks of words are check.py's.

A space is named after its file. A folder of the user's adds its spaces to the built-in ones; one of
the same file name takes the built-in one's place.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from humming.errors import SpaceError
from search_spaces.check import (
    check_applies_to,
    check_family,
    check_parameters,
    read_constraints,
)
from search_spaces.document import Problem, read_document, shown
from search_spaces.feasible import infeasible
from search_spaces.model import SearchSpace
from search_spaces.schema import parse_shape

MAX_SIZE = 10_000_000
_SUFFIXES = (".yaml", ".yml")


def builtin_folder() -> Path:
    """The folder of the spaces that come with the package."""
    return Path(__file__).parent / "spaces"


def load_space(path: str | Path) -> SearchSpace:
    """The space in the file at `path`.

    Raises SpaceError "file:line: what is wrong" with the first thing that is.
    """
    found = _examine(Path(path))
    if isinstance(found, SearchSpace):
        return found
    raise SpaceError(str(found[0]))


def load_spaces(folder: str | Path | None = None) -> tuple[SearchSpace, ...]:
    """The built-in spaces and, over them, those of `folder`, sorted by name.

    Raises SpaceError as load_space does.
    """
    spaces = {path.stem: path for path in _files(builtin_folder())}
    if folder is not None:
        spaces.update({path.stem: path for path in _files(Path(folder))})
    return tuple(load_space(spaces[name]) for name in sorted(spaces))


def validate(path: str | Path) -> list[str]:
    """Everything that is wrong in the file at `path`, or in the files of the folder at `path`.

    Each problem reads "file:line: what is wrong"; an empty list means that all is well. Values that
    are legal on no device count too, which `load_space` lets pass: they only cost time.
    """
    problems: list[str] = []
    try:
        files = _files(Path(path)) if Path(path).is_dir() else [Path(path)]
    except SpaceError as error:
        return [str(error)]
    for file in files:
        try:
            found = _examine(file)
        except SpaceError as error:
            problems.append(str(error))
        else:
            mistakes = (
                infeasible(read_document(file), found) if isinstance(found, SearchSpace) else found
            )
            problems += map(str, mistakes)
    return problems


def describe(space: SearchSpace) -> dict[str, Any]:
    """The space as plain data for JSON and for tables."""
    return {
        "name": space.name,
        "family": space.family,
        "path": space.path,
        "applies_to": {
            "arch": list(space.arch),
            "formats": list(space.formats),
            "ops": list(space.ops),
        },
        "parameters": {name: list(values) for name, values in space.parameters.items()},
        "size": space.size(),
        "constraints": [
            {"expr": c.expr.text, "reason": c.reason, "where": c.where} for c in space.constraints
        ],
    }


def _files(folder: Path) -> list[Path]:
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise SpaceError(
            f"{folder}: cannot be listed: {error.strerror}; name a folder of space files"
        ) from None
    if not files:
        raise SpaceError(f"{folder}: holds no *.yaml file; name a folder of space files")
    stems = [path.stem for path in files]
    for path in files:
        if stems.count(path.stem) > 1:
            raise SpaceError(f"{shown(path)}: two files name a space '{path.stem}'; rename one")
    return files


def _examine(path: Path) -> SearchSpace | list[Problem]:
    """The space, or everything wrong with it.

    A mistake that hides later ones ends the list. Raises SpaceError if unreadable.
    """
    document = read_document(path)
    if document.problems:
        return document.problems
    shape = parse_shape(document)
    if isinstance(shape, list):
        return shape
    problems = check_family(document, shape)
    if problems:
        return problems
    constraints, problems = read_constraints(document, shape)
    problems += check_applies_to(document, shape) + check_parameters(document, shape)
    if problems:
        return sorted(problems, key=lambda problem: problem.line)
    space = SearchSpace(
        name=path.stem,
        family=shape.family,
        parameters={name: tuple(values) for name, values in shape.parameters.items()},
        constraints=constraints,
        path=document.file,
        arch=tuple(shape.applies_to.arch),
        formats=tuple(shape.applies_to.formats),
        ops=tuple(shape.applies_to.ops),
    )
    if space.size() > MAX_SIZE:
        text = f"a space has at most {MAX_SIZE} configs, but got {space.size()}; list fewer values"
        return [document.problem(("parameters",), text, at_key=True)]
    return space
