"""Searches the scale, and zero point, of least squared error. What a fit is, is fitting.py.

Smaller scales than that of the largest magnitude clip it and are finer for the rest. They are tried
in steps, then around the best; where any number may be a scale, least squares on the codes that
came out then give a better one, a few times over.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from humming.quantize.fitting import Fit, Fitter, Pieces, wide

_STEP = 0.9
_DOWN = 22
"""Steps down from the scale of the largest magnitude, to a tenth of it."""
_UP = 6
"""Steps up, for floats: their largest magnitude may fit a lower code better."""
_HALVINGS = 3
_ROUNDS = 4
"""Of least squares."""


class _Best:
    """The best fit of each unit so far, and its error."""

    def __init__(self, fitter: Fitter, pieces: Pieces, fit: Fit) -> None:
        self.fitter, self.pieces, self.fit = fitter, pieces, fit
        self.error = fitter.error(pieces, fit)

    def offer(self, fit: Fit) -> torch.Tensor:
        """Takes `fit` for the units where it is better; says where."""
        error = self.fitter.error(self.pieces, fit)
        better = error < self.error
        self.fit = fit.where(better, self.fit)
        self.error = torch.where(better, error, self.error)
        return better


def searched(fitter: Fitter, pieces: Pieces) -> Fit:
    """The best fit found for each unit, never worse than `fitter.absmax`."""
    start = fitter.absmax(pieces)
    best = _Best(fitter, pieces, start)
    if fitter.scale_dtype == torch.float8_e8m0fnu:
        for power in (2.0, 0.5, 0.25, 0.125):
            best.offer(Fit((start.scale * power).clamp(2.0**-127, 2.0**127)))
    elif start.zero is None:
        _search_scale(best)
    else:
        _search_range(best)
    return best.fit


def _search_scale(best: _Best) -> None:
    fitter, start = best.fitter, best.fit.scale
    signs = (1.0, -1.0) if fitter.stored.name == "int1" else (1.0,)
    best_ratio = torch.ones_like(start)
    for sign in signs:
        for ratio in _ratios(0 if fitter.stored.is_integer else _UP, _DOWN):
            better = best.offer(Fit(fitter.rounded(start * (ratio * sign))))
            best_ratio = torch.where(better, ratio * sign, best_ratio)
    for halving in range(1, _HALVINGS + 1):
        around = _STEP ** (0.5**halving)
        middle = best_ratio
        for nearby in (around, 1 / around):
            better = best.offer(Fit(fitter.rounded(start * middle * nearby)))
            best_ratio = torch.where(better, middle * nearby, best_ratio)
    for _ in range(_ROUNDS):
        products, squares = _sums(best, centred=False)
        best.offer(Fit(fitter.rounded(_divided(products, squares, best.fit.scale))))


def _search_range(best: _Best) -> None:
    """Where codes have a zero point: both ends are drawn in together, then each on its own."""
    fitter, start = best.fitter, best.fit
    assert start.zero is not None
    low = -start.zero * start.scale
    high = low + fitter.stored.largest * start.scale
    low, high = _drawn_in(best, low, high, (1.0, 1.0))
    for ends in ((1.0, 0.0), (0.0, 1.0)):
        low, high = _drawn_in(best, low, high, ends)
    for _ in range(2 * _ROUNDS):
        assert best.fit.zero is not None
        if fitter.weight.zero_point == "float":
            products, squares = _sums(best, centred=True)
            scale = fitter.rounded(_divided(products, squares, best.fit.scale))
            best.offer(Fit(scale, fitter.rounded_zero(_level(best, scale))))
        else:
            products, squares = _sums(best, centred=False)
            scale = fitter.rounded(_divided(products, squares, best.fit.scale))
            for step in (0.0, 1.0, -1.0):
                best.offer(Fit(scale, fitter.rounded_zero(best.fit.zero + step)))


def _drawn_in(
    best: _Best, low: torch.Tensor, high: torch.Tensor, ends: tuple[float, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Offers ranges whose `ends` are drawn in towards the middle; the best range."""
    middle, kept_low, kept_high = (low + high) / 2, low, high
    for ratio in _ratios(0, _DOWN):
        near = low + (middle - low) * ((1 - ratio) * ends[0])
        far = high + (middle - high) * ((1 - ratio) * ends[1])
        better = best.offer(best.fitter.of_range(near, far))
        kept_low = torch.where(better, near, kept_low)
        kept_high = torch.where(better, far, kept_high)
    return kept_low, kept_high


def _sums(best: _Best, centred: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Of values on the grid, their products with the numbers and their squares, over each unit;
    `centred`: less their means."""
    products, squares = [], []
    for piece in best.pieces:
        values, numbers = best.fitter.on_grid(piece, best.fit), wide(piece)
        if centred:
            values = values - values.mean(1, keepdim=True)
        products.append((values * numbers).sum(1, keepdim=True))
        squares.append(values.square_().sum(1, keepdim=True))
    return best.fitter.summed(products), best.fitter.summed(squares)


def _level(best: _Best, scale: torch.Tensor) -> torch.Tensor:
    """The zero point at which the mean of a unit is right: its codes' mean, less its own in
    steps."""
    assert best.fit.zero is not None
    codes, numbers, count = [], [], 0
    for piece in best.pieces:
        codes.append(best.fitter.on_grid(piece, best.fit).sum(1, keepdim=True))
        numbers.append(wide(piece).sum(1, keepdim=True))
        count += piece.shape[1]
    mean_code = best.fitter.summed(codes) / count + best.fit.zero
    return mean_code - best.fitter.summed(numbers) / count / scale


def _divided(products: torch.Tensor, squares: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
    """The scale of least squares; the old one where there is none."""
    ratio = products / squares
    usable = torch.isfinite(ratio) & (ratio != 0) & (ratio.sign() == kept.sign())
    return torch.where(usable, ratio, kept)


def _ratios(up: int, down: int) -> Iterator[float]:
    """Steps of a scale, the largest magnitude's own first: up, then down."""
    return (_STEP**step for step in [*range(-1, -up - 1, -1), *range(1, down + 1)])
