"""Quantization configs of checkpoints, in every tool's spelling -> a format per module. Shapes are
known elsewhere.
"""

from tuner.workload.quantization.read import read_quantization
from tuner.workload.quantization.scheme import Quantization, Scheme

__all__ = ["Quantization", "Scheme", "read_quantization"]
