"""The product's version, part of every identity. Nothing else."""

__version__ = "0.1.0"
