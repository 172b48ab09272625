"""From keys that people have to the integers that arrays need."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np


class Groups(NamedTuple):
    """A grouping of rows.

    Attributes:
        ids: (B,) int32, the group of each row, numbered by first appearance.
        num_groups: number of distinct keys.
        keys: the key of each group: ``keys[ids[i]]`` is row i's key.
    """

    ids: np.ndarray
    num_groups: int
    keys: tuple[Hashable, ...]


def encode_groups(keys: Iterable[Any]) -> Groups:
    """Number the groups of a batch by their keys.

    Rows with equal keys are one group; keys keep no order but that of first appearance. Use a tuple
    where one value does not identify a task, such as ``(environment, example_id)``: example numbers
    restart in every environment.

    Args:
        keys: one hashable key a row: strings, integers, tuples; a list, an array, a column.

    Returns:
        Groups with host arrays.

    Raises:
        ValueError: a key is missing (None, NaN, NaT, or a tuple that holds one): absence is not a
            group, neither one for all nor one for each.
        TypeError: a key is not hashable, or ``keys`` is one string.
    """
    if isinstance(keys, str | bytes):
        raise TypeError("keys must be one key a row; got a single string")
    if hasattr(keys, "to_pylist"):  # Arrow, whose scalars are not equal to themselves by value
        keys = keys.to_pylist()
    elif hasattr(keys, "tolist"):
        keys = keys.tolist()
    if not isinstance(keys, Iterable):
        raise TypeError(f"keys must be one key a row; got {type(keys).__name__}")
    first_seen: dict[Hashable, int] = {}
    ids = []
    for row, key in enumerate(keys):
        try:
            known = first_seen.get(key)
        except TypeError:
            raise TypeError(
                f"keys must be hashable; row {row} holds a {type(key).__name__}. Use a tuple"
            ) from None
        if known is None:
            if _missing(key):
                raise ValueError(f"keys has a missing id in row {row}: {key!r}")
            known = first_seen[key] = len(first_seen)
        ids.append(known)
    return Groups(np.array(ids, np.int32), len(first_seen), tuple(first_seen))


def _missing(key: Any) -> bool:
    if isinstance(key, tuple):
        return any(map(_missing, key))
    # NaN and NaT differ from themselves; pandas' NA has no truth value at all.
    try:
        return key is None or bool(key != key)
    except TypeError:
        return True
