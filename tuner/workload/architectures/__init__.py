"""The table of architectures: which linear layers a model has, how engines fuse and split them. A
new one is one entry in dense.py, experts.py, hybrid.py, latent.py or uneven.py.

Only data, in the words of vocabulary.py: reading values is sizes.py, counting layers is plan.py.
"""

from tuner.workload.architectures.dense import DENSE_MODELS
from tuner.workload.architectures.experts import EXPERT_MODELS
from tuner.workload.architectures.hybrid import HYBRID_MODELS
from tuner.workload.architectures.latent import LATENT_MODELS
from tuner.workload.architectures.uneven import UNEVEN_MODELS
from tuner.workload.architectures.vocabulary import (
    Architecture,
    Every,
    If,
    Leading,
    Linear,
    Listed,
    Members,
    Part,
    Pattern,
    Trailing,
    Width,
)

ARCHITECTURES: tuple[Architecture, ...] = (
    *DENSE_MODELS,
    *EXPERT_MODELS,
    *HYBRID_MODELS,
    *LATENT_MODELS,
    *UNEVEN_MODELS,
)

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "Every",
    "If",
    "Leading",
    "Linear",
    "Listed",
    "Members",
    "Part",
    "Pattern",
    "Trailing",
    "Width",
]
