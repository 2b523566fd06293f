"""Operands of races lie anywhere, aligned as an allocator aligns, and hold what they held."""

from __future__ import annotations

import torch

from tuner.worker.placing import ALIGNMENT, Places

CPU = torch.device("cpu")


def test_places_are_drawn_anew_and_aligned():
    places = Places(CPU, 1)
    x = torch.randn(5, 7).to(torch.bfloat16)
    kept = [places.copy(x) for _ in range(20)]
    assert all(torch.equal(copy, x) and copy.is_contiguous() for copy in kept)
    assert all(copy.data_ptr() % ALIGNMENT == 0 for copy in kept)
    assert len({copy.data_ptr() % 2**20 for copy in kept}) > 15
    again = Places(CPU, 1)
    assert [again.order(range(9)) for _ in kept] != [list(range(9))] * 20
    assert sorted(again.order(range(9))) == list(range(9))


def test_nothing_needs_no_room():
    empty = Places(CPU, 2).empty((0,), torch.uint8)
    assert empty.shape == (0,) and empty.nbytes == 0
