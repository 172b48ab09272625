"""From 65,536 uid strings, 16 of each, to integer group ids.

Frameworks hold uids as Python strings, one object a row, and so do these implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from _common import Arrays, Case, Gate, Implementation, Prepared, uids

TITLE = "Group keys to ids"
CASE = "encode_65536_uids"


def cases(tiny: bool) -> Iterator[Case]:
    prompts, each = (4, 4) if tiny else (4096, 16)
    rng = np.random.default_rng(23)
    which = rng.permutation(np.repeat(np.arange(prompts), each))
    names = uids(which)
    yield Case(CASE, {"names": names}, {"ids": _by_appearance(which)})


def _by_appearance(labels: np.ndarray) -> np.ndarray:
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), int)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _ids(result: Any) -> Arrays:
    return {"ids": _by_appearance(np.asarray(result))}


def _advlib(case: Case) -> Prepared:
    import advlib

    keys = case.inputs["names"].tolist()
    return Prepared(lambda: advlib.encode_groups(keys).ids, _ids)


def _numpy(as_objects: bool) -> Callable[[Case], Prepared]:
    def prepare(case: Case) -> Prepared:
        keys = case.inputs["names"].tolist()
        array = np.array(keys, object)

        def call() -> np.ndarray:
            given = array if as_objects else np.array(keys)
            return np.unique(given, return_inverse=True)[1]

        return Prepared(call, _ids)

    return prepare


def _verl(case: Case) -> Prepared:
    from verl.utils.groupwise import as_torch_index

    index = case.inputs["names"].astype(object)
    return Prepared(lambda: as_torch_index(index, device="cpu"), _ids)


IMPLEMENTATIONS = (
    Implementation("advlib", "base", "advlib", _advlib),
    Implementation("np.unique, objects", "base", "numpy", _numpy(as_objects=True)),
    Implementation("np.unique, from a list", "base", "numpy", _numpy(as_objects=False)),
    Implementation("verl as_torch_index", "peers", "verl", _verl),
)

GATES = (Gate(CASE, "advlib", "np.unique, objects", 1.0),)
