"""The table of readers, and which of them reads a checkpoint. One format a file in readers/."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from humming.checkpoints.config.source import Source, method_of
from humming.checkpoints.layer import CheckpointLayer
from humming.checkpoints.stored import StoredModule
from humming.checkpoints.tensor_files import TensorFiles
from humming.errors import CheckpointError


@dataclass(frozen=True)
class Reader:
    """How one public format is read.

    title       as its makers call it
    methods     the quant_method of its configs, in the spelling of config/source.py
    modules     the names of the modules that a checkpoint stores so, told from its tensors
    read        one module -> a layer; raises CheckpointError
    formats     formats that it gives, as examples; "..." where there are more
    """

    title: str
    methods: tuple[str, ...]
    modules: Callable[[TensorFiles, Source], Iterable[str]]
    read: Callable[[StoredModule], CheckpointLayer]
    formats: tuple[str, ...]

    def recognises(self, source: Source) -> bool:
        """Whether `source` is a config of this format."""
        return method_of(source) in self.methods


def having(*suffixes: str) -> Callable[[TensorFiles, Source], Iterable[str]]:
    """`modules` for a format in which a stored module is one that has a tensor called so."""
    dotted = tuple(f".{suffix}" for suffix in suffixes)

    def modules(files: TensorFiles, source: Source) -> Iterable[str]:  # noqa: ARG001
        return dict.fromkeys(
            name[: -len(suffix)]
            for name in files.names
            for suffix in dotted
            if name.endswith(suffix)
        )

    return modules


def readers() -> tuple[Reader, ...]:
    """All readers, in alphabetical order."""
    from humming.checkpoints import readers as folder

    return folder.READERS


def reader_of(source: Source) -> Reader:
    """The reader of checkpoints with the quantization `source`; CheckpointError where none is."""
    found = next((reader for reader in readers() if reader.recognises(source)), None)
    if found is None:
        known = ", ".join(sorted({method for reader in readers() for method in reader.methods}))
        method = method_of(source)
        raise CheckpointError(
            f"{source.file}: `{source.path('quant_method')}` must be one of {known}, but "
            f"{'is missing' if method is None else f'got {method!a}'}; use another checkpoint of "
            f"this model"
        )
    return found
