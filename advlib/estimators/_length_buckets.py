"""Prompts of similar length are alike: the plainest features of a kernel baseline."""

from __future__ import annotations

import numpy as np

from advlib import _checks
from advlib._checks import Values


def length_buckets(lengths: Values, *, num_buckets: int = 8) -> np.ndarray:
    """Features under which prompts of similar length are alike, and all others are not.

        k_i = #{edges < length_i},    edges = the m/num_buckets quantiles, m = 1 … num_buckets - 1

    Rows are one-hot: cosine 1 within a bucket, 0 between buckets. Equal lengths share a bucket; a
    length equal to an edge falls below it. With many equal lengths some buckets stay empty.

    Args:
        lengths: (B,) lengths of the *prompts*, in any unit. A response's length must not be used:
            the baseline would depend on the response.
        num_buckets: number of columns, at least 1.

    Returns:
        (B, num_buckets) float32 NumPy array.

    Raises:
        TypeError: lengths are not numbers.
        ValueError: a length is not finite, ``num_buckets`` is less than 1.
    """
    if not isinstance(num_buckets, int | np.integer) or isinstance(num_buckets, bool):
        raise TypeError(
            f"num_buckets must be a Python integer, it sets a shape; "
            f"got {type(num_buckets).__name__}"
        )
    count = int(num_buckets)
    if count < 1:
        raise ValueError(f"num_buckets must be at least 1; got {count}")
    # Exact in float64, whatever the precision of the rest: edges decide by comparison.
    values = _checks.as_numpy("lengths", lengths)
    _checks.column("lengths", values, "float")
    values = values.astype(np.float64)
    _checks.finite_where("lengths", values, np.ones(values.shape, bool))
    if not values.size:
        return np.zeros((0, count), np.float32)
    edges = np.quantile(values, np.arange(1, count) / count)
    buckets = np.searchsorted(edges, values, side="left")
    return (buckets[:, None] == np.arange(count)).astype(np.float32)
