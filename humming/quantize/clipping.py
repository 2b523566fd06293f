"""Searches the scale, and zero point, of least squared error. What a fit is, is fitting.py."""

from __future__ import annotations

from humming.quantize.fitting import Fit, Fitter, Pieces


def searched(fitter: Fitter, pieces: Pieces) -> Fit:
    """The best fit found for each unit, never worse than `fitter.absmax`."""
    return fitter.absmax(pieces)
