"""The order of questions."""

from __future__ import annotations

import numpy as np
import pytest

from advlib.trainer import question_order


def test_each_pass_is_a_permutation_and_no_two_are_equal() -> None:
    whole = question_order(50, 0, 150, seed=1).reshape(3, 50)
    np.testing.assert_array_equal(np.sort(whole, 1), np.tile(np.arange(50), (3, 1)))
    assert len(np.unique(whole, axis=0)) == 3


def test_how_many_are_taken_at_a_time_does_not_matter() -> None:
    whole = question_order(7, 0, 40, seed=2)
    for size in (1, 4, 13):
        parts = [
            question_order(7, start, min(size, 40 - start), seed=2) for start in range(0, 40, size)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_seeds_differ() -> None:
    assert (question_order(100, 0, 100, seed=0) != question_order(100, 0, 100, seed=1)).any()


@pytest.mark.parametrize("arguments", [(0, 0, 1), (5, -1, 1), (5, 0, 0)])
def test_bad_numbers_are_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        question_order(*arguments)
