"""Cosines between prompts, and the kernel's weights, for many small batches at once.

This is the estimator of a diagnostic: float64 on the host, a few thousand batches of a few dozen
prompts. Training uses the functions of the package itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from advlib.estimators import _kernel_rows

PAIRS_AT_ONCE = 1 << 16  # cosines in memory: 512 KiB, so that passes over them stay in the cache
COLUMNS_AT_ONCE = 1 << 23  # of the block matrix below, whose column pointers take 4 bytes each


def unit_rows(features: Any, num_rows: int, row_name: str = "task") -> Any:
    """Features with rows of length one; rows of zeros stay zeros.

    Args:
        features: (N, D) numbers, or a SciPy sparse matrix or array of that shape.
        num_rows: the N that is wanted.
        row_name: what a row is, for messages.

    Returns:
        (N, D) float64: an array, or a CSR array.

    Raises:
        TypeError: the features are not numbers.
        ValueError: the shape is another one, a feature is not finite.
    """
    sparse = hasattr(features, "tocsr")
    if sparse:
        matrix = features.tocsr().astype(np.float64)  # a copy
        matrix.sum_duplicates()
        values = matrix.data
    else:
        matrix = np.asarray(features)
        if matrix.dtype.kind not in "biuf" and matrix.dtype.name != "bfloat16":
            raise TypeError(f"features must be numbers; got dtype {matrix.dtype}")
        matrix = values = matrix.astype(np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != num_rows:
        raise ValueError(
            f"features must have shape ({num_rows}, D), one row a {row_name}; "
            f"got {tuple(matrix.shape)}"
        )
    if not np.isfinite(values).all():
        raise ValueError("features must be finite; got NaN or infinity")
    return _kernel_rows.unit_rows(matrix, None).rows


def _row_of(matrix: Any) -> np.ndarray:
    """The row of each stored number of a CSR matrix."""
    return np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))


def batches_at_once(features: Any, batch_size: int) -> int:
    """How many batches of :func:`cosines` fit the memory that is allowed."""
    count = PAIRS_AT_ONCE // batch_size**2
    if hasattr(features, "indptr"):
        count = min(count, COLUMNS_AT_ONCE // max(1, features.shape[1]))
    return max(1, count)


def cosines(features: Any, batches: np.ndarray) -> np.ndarray:
    """The cosine of every two prompts that share a batch.

    Args:
        features: (N, D) from :func:`unit_rows`.
        batches: (C, B) rows of the features.

    Returns:
        (C, B, B).
    """
    count, size = batches.shape
    rows = features[batches.ravel()]
    if not hasattr(rows, "indptr"):
        rows = rows.reshape(count, size, -1)
        return rows @ rows.transpose(0, 2, 1)
    # With its own columns for each batch, one sparse product gives the blocks and nothing else.
    from scipy.sparse import csr_matrix

    width = rows.shape[1]
    own = (_row_of(rows) // size) * width + rows.indices
    blocks = csr_matrix((rows.data, own, rows.indptr), shape=(count * size, count * width))
    product = (blocks @ blocks.T).tocsr()
    result = np.zeros((count * size, size))
    result[_row_of(product), product.indices % size] = product.data
    return result.reshape(count, size, size)


def neighbour_weights(cosine: np.ndarray, temperature: float) -> np.ndarray:
    """Weights of the others in a batch: softmax(cos / T) over j ≠ i, exactly 0 at j = i.

    Args:
        cosine: (C, B, B).
        temperature: T; infinity gives 1 / (B - 1).

    Returns:
        (C, B, B), rows that sum to one.
    """
    weights = cosine / temperature
    own = np.arange(cosine.shape[1])
    weights[:, own, own] = -np.inf
    # The maximum over the others: with the own 1 in it, all others underflow at a small T.
    weights -= weights.max(2, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(2, keepdims=True)
    return weights
