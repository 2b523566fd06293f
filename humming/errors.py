"""The exception tree. Every message states the rule, the values, and what to do; no other file
defines exceptions.

HummingError                 anything this project raises on purpose
├── UsageError               the user can mend it: exit code 2
│   ├── FormatError          a format name that does not parse, or that nothing here can run
│   ├── ModelError           a config.json that cannot be read or planned
│   ├── CheckpointError      a checkpoint whose tensors cannot be read, or do not fit its config
│   ├── SpaceError           a search space file with a mistake (file, line, nearest legal name)
│   ├── LegalityError        a problem or config that breaks a rule of spec/legality.py
│   ├── LayoutError          weights, dtypes or devices that do not fit a packed layer
│   ├── TableError           a tuned table that cannot be read or does not fit
│   ├── StoreError           a database that cannot be opened, written or understood
│   │   └── StoreAwayError   a database server that does not answer at this moment
│   └── CompilerNotFoundError  no C++ compiler or NVRTC on this machine
├── CompileError             the compiler refused, crashed or ran out of time
├── KernelLoadError          a compiled kernel that must not or cannot be loaded here
└── LaunchError              a kernel that reported a failure when called

UntunedWarning (RuntimeWarning)  a layer that a heuristic config serves, once for each problem
"""


class HummingError(Exception):
    """Base class of every exception raised on purpose by this project."""

    exit_code = 1


class UsageError(HummingError):
    """Input or surroundings that the user can mend; the message is one sentence that says how."""

    exit_code = 2


class FormatError(UsageError):
    """A quantization format that does not parse or cannot run."""


class ModelError(UsageError):
    """A model config that cannot be read or planned."""


class CheckpointError(UsageError):
    """A checkpoint whose tensors are missing, broken, or in a form that nothing here describes."""


class SpaceError(UsageError):
    """A search space file that does not validate."""


class LegalityError(UsageError):
    """A problem or config that breaks a named rule."""


class LayoutError(UsageError):
    """Tensors whose shape, dtype, device or layout does not fit."""


class TableError(UsageError):
    """A tuned table that cannot be read or does not fit this layer."""


class StoreError(UsageError):
    """A tuning database that cannot be opened, written or understood."""


class StoreAwayError(StoreError):
    """A database server that does not answer: it may be back later."""


class CompilerNotFoundError(UsageError):
    """No compiler for the target on this machine."""


class CompileError(HummingError):
    """The compiler refused, crashed or ran out of time."""


class KernelLoadError(HummingError):
    """A compiled kernel that must not or cannot be loaded on this machine."""


class LaunchError(HummingError):
    """A kernel that reported a failure when called."""


class UntunedWarning(RuntimeWarning):
    """A layer was never tuned on this machine, so a heuristic config serves it."""
