"""Search spaces as files: what the tuner may try. What is legal is in humming.spec.legality."""

from search_spaces.context import context_of
from search_spaces.load import builtin_folder, describe, load_space, load_spaces, validate
from search_spaces.model import Constraint, Pruned, SearchSpace
from search_spaces.select import select

__all__ = [
    "Constraint",
    "Pruned",
    "SearchSpace",
    "builtin_folder",
    "context_of",
    "describe",
    "load_space",
    "load_spaces",
    "select",
    "validate",
]
