"""The order in which questions come: a function of seed and place, with nothing to remember."""

from __future__ import annotations

import numpy as np

from advlib.trainer._options import count

__all__ = ["question_order"]


def question_order(size: int, start: int, number: int, *, seed: int = 0) -> np.ndarray:
    """Which questions come at places ``start`` to ``start + number - 1``.

    Each pass over the questions is another permutation; two runs of one seed see one order, however
    many questions they take a step.

    Args:
        size: number of questions of the environment.
        start: questions taken before, over all passes.
        number: how many to take.
        seed: of the permutations.

    Returns:
        (number,) int64 indices in [0, size).

    Raises:
        TypeError, ValueError: a number is not an integer or too small.
    """
    count("size", size, 1)
    count("seed", seed, 0)
    places = np.arange(count("start", start, 0), start + count("number", number, 1))
    passes = places // size
    indices = np.empty(number, np.int64)
    for turn in range(int(passes[0]), int(passes[-1]) + 1):
        here = passes == turn
        indices[here] = np.random.default_rng((seed, turn)).permutation(size)[places[here] % size]
    return indices
