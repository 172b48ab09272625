"""Rows of unit length on the host: which of them are equal, and their products block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

# A tile of products stays in the second-level cache. A word of the batch's most frequent ones costs
# one multiplication a pair, any other one costs about twenty for each pair that shares it.
TILE = 512
NUM_FREQUENT = 96

Block = Callable[[int], np.ndarray]  # row tile to products with one tile of columns


class UnitRows(NamedTuple):
    """The distinct rows of a batch, each of unit length or zero.

    Attributes:
        rows: (U, D) a float64 SciPy CSR array without repeated entries, or a NumPy array.
        group: (B,) which distinct row each sample has; None where all are distinct.
        nonzero: (U,) bool.
    """

    rows: Any
    group: np.ndarray | None
    nonzero: np.ndarray

    @property
    def size(self) -> int:
        return self.nonzero.shape[0]


class Repeats(NamedTuple):
    """Which samples have equal features.

    Attributes:
        group: (B,) which distinct row each sample has; None where all are distinct.
        kept: (U,) a sample with each distinct row.
    """

    group: np.ndarray | None
    kept: np.ndarray


def repeats(features: Any) -> Repeats:
    """Find equal rows of a NumPy array or of a SciPy CSR array in canonical form."""
    if isinstance(features, np.ndarray):
        return _distinct(_dense_keys(features), lambda a, b: _equal_dense(features, a, b))
    return _distinct(_sparse_keys(features), lambda a, b: _equal_sparse(features, a, b))


def unit_rows(features: Any, found: Repeats | None) -> UnitRows:
    """Distinct rows, normalised.

    Args:
        features: (B, D) finite, a SciPy CSR array in canonical form or a NumPy array.
        found: its repeats, or None where nobody has looked.
    """
    group = None if found is None else found.group
    rows = features if found is None or group is None else features[found.kept]
    if isinstance(rows, np.ndarray):
        rows = rows.astype(np.float64)
        top = np.max(np.abs(rows), axis=1, initial=0.0)
        rows /= np.where(top == 0, 1, top)[:, None]
        norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows /= np.where(norm == 0, 1, norm)[:, None]
        return UnitRows(rows, group, norm > 0)
    data, _, nonzero = _unit_data(rows)
    return UnitRows(_array((data, rows.indices, rows.indptr), rows.shape), group, nonzero)


def _unit_data(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Entries over their row's length, the row of each entry, and which rows are not zero."""
    size = rows.shape[0]
    row = np.arange(size).repeat(rows.indptr[1:] - rows.indptr[:-1])
    data = rows.data.astype(np.float64)
    square = np.bincount(row, data * data, size)
    if data.size and not 1e-200 < square.min() <= square.max() < 1e200:
        # Empty rows, or squares that leave the range of float64: measure in units of the largest.
        top = np.zeros(size)
        np.maximum.at(top, row, np.abs(data))
        data /= np.where(top == 0, 1, top)[row]
        square = np.bincount(row, data * data, size)
    nonzero = square > 0
    data /= np.sqrt(np.where(nonzero, square, 1))[row]
    return data, row, nonzero


def _distinct(keys: np.ndarray, equal: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Repeats:
    """Repeats among rows with these keys; rows of one key are compared."""
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return Repeats(None, first)
    repeated = np.flatnonzero(first[group] != np.arange(len(keys)))
    same = equal(repeated, first[group[repeated]])
    strangers = repeated[~same]  # different rows with one key stand for themselves
    group[strangers] = len(first) + np.arange(len(strangers))
    return Repeats(group, np.concatenate([first, strangers]))


def _sparse_keys(features: Any) -> np.ndarray:
    return features @ np.random.default_rng(0).random(features.shape[1])


def _dense_keys(features: np.ndarray) -> np.ndarray:
    size, width = features.shape
    exact = np.ascontiguousarray(features) + 0.0  # -0 equals 0
    bits = exact.view(np.uint32 if exact.dtype == np.float32 else np.uint64)
    mix = np.random.default_rng(0).integers(1, 2**63, max(width, 1), dtype=np.uint64) | 1
    keys = np.zeros(size, np.uint64)
    for start in range(0, size, TILE):
        keys[start : start + TILE] = bits[start : start + TILE].astype(np.uint64) @ mix[:width]
    return keys


def _equal_dense(features: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    same = np.empty(len(a), bool)
    for start in range(0, len(a), TILE):
        part = slice(start, start + TILE)
        same[part] = (features[a[part]] == features[b[part]]).all(axis=1)
    return same


def _equal_sparse(features: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    counts = np.diff(features.indptr)
    same = counts[a] == counts[b]
    chunk = 64 * TILE
    for start in range(0, len(a), chunk):
        part = start + np.flatnonzero(same[start : start + chunk])
        length = counts[a[part]]
        row = np.repeat(np.arange(len(part)), length)
        place = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
        left = features.indptr[a[part]][row] + place
        right = features.indptr[b[part]][row] + place
        differ = features.indices[left] != features.indices[right]
        differ |= features.data[left] != features.data[right]
        same[part[row[differ]]] = False
    return same


def _array(parts: tuple[np.ndarray, ...], shape: tuple[int, int]) -> Any:
    from scipy.sparse import csr_array  # plus a NumPy array it gives a NumPy array, not a matrix

    return csr_array(parts, shape=shape)


def few_cosines(rows: Any, dtype: Any) -> np.ndarray:
    """(B, B) cosines of few rows of a SciPy CSR matrix in canonical form; 0 for rows of zeros.

    Their words fit a small dense matrix, whose product is cheaper than one of sparse matrices.
    """
    words = rows.indices
    data, row, _ = _unit_data(rows)
    if rows.shape[1] > 32 * words.size:
        distinct, column = np.unique(words, return_inverse=True)
    else:  # a table of all words is smaller than a sort is slow
        seen = np.zeros(rows.shape[1], bool)
        seen[words] = True
        distinct = seen.nonzero()[0]
        place = np.empty(rows.shape[1], np.int32)
        place[distinct] = np.arange(distinct.size, dtype=np.int32)
        column = place[words]
    dense = np.zeros((rows.shape[0], distinct.size), dtype)
    dense[row, column] = data
    right = dense.T.copy()  # two matrices, since the symmetric product of one is slower
    # In pieces that the matrix library leaves to one thread: waking a second one takes longer, and
    # ten times longer where other processes want the processor.
    step = max(1, 2**18 // max(right.size, 1))
    cosines = np.empty((rows.shape[0], rows.shape[0]), dtype)
    for start in range(0, rows.shape[0], step):
        np.matmul(dense[start : start + step], right, out=cosines[start : start + step])
    return cosines


class Products:
    """x_i · x_j, scaled, for tile after tile of columns j and of rows i."""

    def __init__(self, rows: Any, scale: float, dtype: Any) -> None:
        """Split sparse rows into a dense part, of the most frequent words, and the rest.

        Args:
            rows: (U, D) as :class:`UnitRows` has them.
            scale: what every product is multiplied by.
            dtype: float32 or float64.
        """
        root = np.sqrt(scale)
        self.size = rows.shape[0]
        self.tiles = [
            slice(start, min(start + TILE, self.size)) for start in range(0, self.size, TILE)
        ]
        self._tails: list[Any] = []
        if isinstance(rows, np.ndarray):
            self._dense = (rows * root).astype(dtype)
            return
        documents = np.bincount(rows.indices, minlength=rows.shape[1])
        frequent = np.argsort(-documents, kind="stable")[:NUM_FREQUENT]
        # A word of one row alone is in no product of two.
        shared = documents > 1
        shared[frequent] = False
        place = np.full(rows.shape[1], -1, np.int32)
        place[frequent] = np.arange(len(frequent))
        self._dense = np.zeros((self.size, len(frequent)), dtype)
        place_tail = np.cumsum(shared, dtype=np.int32) - 1
        num_tail = int(shared.sum())
        for tile in self.tiles:
            part = slice(rows.indptr[tile.start], rows.indptr[tile.stop])
            words, data = rows.indices[part], (rows.data[part] * root).astype(dtype)
            counts = np.diff(rows.indptr[tile.start : tile.stop + 1])
            row = np.repeat(np.arange(len(counts)), counts)
            dense = place[words] >= 0
            self._dense[tile.start + row[dense], place[words[dense]]] = data[dense]
            if num_tail:
                rest = shared[words]
                ends = np.cumsum(np.bincount(row[rest], minlength=len(counts)))
                indptr = np.concatenate([[0], ends]).astype(np.int32)
                parts = (data[rest], place_tail[words[rest]], indptr)
                self._tails.append(_array(parts, (len(counts), num_tail)))

    def with_columns(self, column: int) -> Block:
        """Products of a row tile with tile `column`, as a fresh array."""
        right = self._dense[self.tiles[column]].T
        if not self._tails:
            return lambda row: self._dense[self.tiles[row]] @ right
        words = self._tails[column].T.tocsr()

        def block(row: int) -> np.ndarray:
            dense = self._dense[self.tiles[row]] @ right
            return np.asarray(self._tails[row] @ words + dense)

        return block


def shares(num_tiles: int, num_threads: int) -> Iterator[list[int]]:
    """Tiles of columns for each thread, back and forth: tile c meets c + 1 tiles of rows."""
    turn = np.arange(num_tiles) // num_threads % 2
    place = np.arange(num_tiles) % num_threads
    owner = np.where(turn == 0, place, num_threads - 1 - place)
    for thread in range(num_threads):
        yield np.flatnonzero(owner == thread).tolist()
