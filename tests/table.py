"""One row per estimator: how to call it, and which laws it keeps.

A row calls the same way whether it is handed the package or the reference, so one table serves
the laws, the sharding tests and the comparison with the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests import reference

# Few shapes, so that little is compiled, and powers of two, so that nothing is padded; never as
# many groups as rows, so that an output's length tells whether it is by row or by group.
NUM_GROUPS = {16: 6, 8: 3}
NUM_CANDIDATES = 7
NUM_MASKED = 8
CONSTANTS = (0.1, 0.85, 0.97, 1.0 / 3.0)


class Batch(NamedTuple):
    """Everything that any estimator takes; each row of the table reads what it needs."""

    rewards: Any
    ids: Any
    where: Any
    tiers: Any
    margins: Any
    hacks: Any
    candidates: Any

    @property
    def num_groups(self) -> int:
        return int(self.margins.shape[0])

    @property
    def size(self) -> int:
        return int(self.rewards.shape[0])


BY_ROW = ("rewards", "ids", "where", "tiers", "hacks", "candidates")


class Row(NamedTuple):
    """One estimator and its laws."""

    name: str
    call: Callable[[Any, Batch], Any]
    # What the mask protects: "rewards", or the "tiers" that stand in their place.
    signal: str = "rewards"
    # Statistics by group; otherwise one NaN reaches the whole batch, and so does a baseline.
    grouped: bool = True
    # Adding a constant to every reward: nothing changes, or the result moves along, or no law.
    shift: str = "invariant"
    # Doubling every reward: the result doubles, or does not change, or no law.
    scale: str = "linear"
    zero_sum: bool = True
    constant_is_zero: bool = True
    lone_is_zero: bool = True
    # The baseline, reward minus advantage, lies within the others' rewards.
    convex: bool = False
    # What the result was divided by, which magnifies rounding: nothing, "std", "peers", "mean".
    divisor: str = ""
    needs_candidates: bool = False

    def __str__(self) -> str:
        return self.name


def group_options(b: Batch) -> dict[str, Any]:
    return {"where": b.where, "num_groups": b.num_groups}


def rank_options(b: Batch) -> dict[str, Any]:
    return {"hacks": b.hacks, **group_options(b)}


def family(name: str, **laws: Any) -> Callable[..., Row]:
    def row(label: str = "", /, **options: Any) -> Row:
        def call(lib: Any, b: Batch) -> Any:
            return getattr(lib, name)(b.rewards, b.ids, **group_options(b), **options)

        return Row(f"{name}[{label}]" if label else name, call, **laws)

    return row


def _gar(label: str, candidates: bool, **options: Any) -> Row:
    def call(lib: Any, b: Batch) -> Any:
        of = {"candidate_ids": b.candidates} if candidates else {}
        return lib.gar(b.rewards, b.tiers, b.ids, **rank_options(b), **of, **options)

    return Row(
        f"gar[{label}]" if label else "gar",
        call,
        # The sum is over candidates, so it is not zero over their traces.
        zero_sum=not candidates or options.get("statistics") == "traces",
        needs_candidates=candidates,
    )


def _ranked(name: str, candidates: bool, call: Callable[..., Any], **laws: Any) -> Row:
    def run(lib: Any, b: Batch) -> Any:
        of = {"candidate_ids": b.candidates} if candidates else {}
        return call(lib, b, of)

    return Row(
        f"{name}[candidates]" if candidates else name,
        run,
        signal="tiers",
        shift="",
        scale="",
        needs_candidates=candidates,
        **laws,
    )


def _rank_margin(lib: Any, b: Batch, of: dict[str, Any]) -> Any:
    return lib.rank_margin(b.tiers, b.margins, b.ids, **rank_options(b), **of)


def _win_rate(lib: Any, b: Batch, of: dict[str, Any]) -> Any:
    return lib.win_rate(b.tiers, b.ids, **rank_options(b), **of)


PROMPTS = np.random.default_rng(5).normal(size=(16, 4)).astype(np.float32)


def _gs1(lib: Any, b: Batch) -> Any:
    # Rows that travel with their sample: a prompt of the candidate, one in three of them repeated.
    if isinstance(b.candidates, jax.Array):
        features: Any = jnp.asarray(PROMPTS)[b.candidates % 11]
    else:
        features = PROMPTS[np.asarray(b.candidates) % 11]
    return lib.gs1(features, b.rewards, temperature=0.5, where=b.where)


_group_mean = family("group_mean")
_group_mean_lone = family("group_mean", lone_is_zero=False, zero_sum=False)
_group_mean_batch = family("group_mean", lone_is_zero=False, zero_sum=False, grouped=False)
_leave_one_out = family("leave_one_out", convex=True)
_peers = family("leave_one_out", divisor="peers", zero_sum=False, scale="")
_grpo = family("grpo", divisor="std", scale="")
_batch_scaled = family("grpo", divisor="std", scale="", grouped=False)

ROWS = [
    _group_mean(),
    _group_mean_batch("fallback=batch_mean", fallback="batch_mean"),
    _leave_one_out(),
    _group_mean_batch("fallback=batch_leave_one_out", fallback="batch_leave_one_out"),
    family("leave_one_out", convex=True, lone_is_zero=False, zero_sum=False, shift="")(
        "fallback=raw", fallback="raw"
    ),
    _peers("normalize", normalize=True),
    _grpo(),
    family("grpo", divisor="std", scale="invariant")("ddof=0,eps=0", ddof=0, eps=0.0),
    _batch_scaled("scale=batch", scale="batch"),
    family("grpo", divisor="std", scale="", zero_sum=False, lone_is_zero=False, grouped=False)(
        "fallback=batch_leave_one_out", fallback="batch_leave_one_out"
    ),
    family("max_rl", divisor="mean", shift="", scale="invariant")(),
    family(
        "max_rl",
        divisor="mean",
        shift="",
        scale="",
        zero_sum=False,
        lone_is_zero=False,
        grouped=False,
    )("fallback=batch_mean", fallback="batch_mean"),
    Row("batch_mean", lambda lib, b: lib.batch_mean(b.rewards, where=b.where), grouped=False),
    Row(
        "batch_leave_one_out",
        lambda lib, b: lib.batch_leave_one_out(b.rewards, where=b.where),
        grouped=False,
        convex=True,
    ),
    Row("batch_gs1", _gs1, grouped=False, convex=True, zero_sum=False),
    Row(
        "hack_floor",
        lambda lib, b: lib.hack_floor(b.rewards, b.hacks, b.ids, **group_options(b)),
        shift="equivariant",
        zero_sum=False,
        constant_is_zero=False,
        lone_is_zero=False,
    ),
    _gar("", False),
    _gar("candidates", True),
    _gar("traces", True, statistics="traces", f_min=0.2, lambda_max=1.2),
    _ranked("rank_margin", False, _rank_margin),
    _ranked("rank_margin", True, _rank_margin, zero_sum=False),
    _ranked(
        "win_rate", False, _win_rate, zero_sum=False, constant_is_zero=False, lone_is_zero=False
    ),
    _ranked(
        "win_rate", True, _win_rate, zero_sum=False, constant_is_zero=False, lone_is_zero=False
    ),
]


def outputs(result: Any) -> list[np.ndarray]:
    """The arrays of a result, be it one array or a named tuple of them."""
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


def advantages(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) else result


def take(b: Batch, rows: Any) -> Batch:
    """The batch that has these rows only, in this order."""
    return b._replace(**{name: getattr(b, name)[rows] for name in BY_ROW})


def valid_groups(b: Batch) -> list[list[int]]:
    return reference.groups_of(b.size, b.ids, b.where, b.num_groups)[0]


def tolerance(row: Row, b: Batch) -> float:
    """Rounding of float32, magnified by what the row divides by."""
    valid = np.asarray(b.where)
    magnitude = max(1.0, float(np.max(np.abs(b.rewards[valid]), initial=0.0)))
    divisors = [1.0]
    for rows in valid_groups(b):
        values = [float(b.rewards[i]) for i in rows]
        if len(values) < 2 or reference.is_constant(values):
            continue
        if row.divisor == "std":
            divisors.append(reference.std(values, 0))
        elif row.divisor == "mean":
            divisors.append(abs(reference.mean(values)) or 1.0)
        elif row.divisor == "peers" and len(values) > 2:
            for i in range(len(values)):
                peers = values[:i] + values[i + 1 :]
                if not reference.is_constant(peers):
                    divisors.append(reference.std(peers, 0))
    everyone = [float(r) for r in b.rewards[valid]]
    if row.divisor and not row.grouped and len(everyone) > 1:
        measure = abs(reference.mean(everyone)) if row.divisor == "mean" else 0.0
        divisors.append(measure or reference.std(everyone, 0) or 1.0)
    return 2e-6 * magnitude / min(divisors)


KINDS = {
    "grid": st.integers(-64, 64).map(lambda k: k / 16.0),
    "binary": st.sampled_from([0.0, 1.0]),
    "decimal": st.sampled_from([0.0, *CONSTANTS]),
}


@st.composite
def batches(draw: Any, row: Row, size: int | None = None, num_masked: int | None = None) -> Batch:
    size = draw(st.sampled_from(list(NUM_GROUPS))) if size is None else size
    num_groups = NUM_GROUPS[size]

    def column(elements: st.SearchStrategy[Any], dtype: Any) -> np.ndarray:
        return np.array(draw(st.lists(elements, min_size=size, max_size=size)), dtype)

    rewards = column(KINDS[draw(st.sampled_from(list(KINDS)))], np.float32)
    ids = column(st.integers(0, num_groups - 1), np.int32)
    tiers = column(st.integers(-1, 3), np.int32)
    hacks = column(st.sampled_from([False, False, False, False, True]), np.bool_)
    if num_masked is None:
        where = column(st.sampled_from([True, True, True, False]), np.bool_)
    else:
        where = np.ones(size, np.bool_)
        where[draw(st.permutations(range(size)))[:num_masked]] = False
    gaps = st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=3, max_size=3)
    margins = np.array(draw(st.lists(gaps, min_size=num_groups, max_size=num_groups)), np.float32)
    candidates = np.arange(size, dtype=np.int32)
    if row.needs_candidates:
        candidates = column(st.integers(0, min(NUM_CANDIDATES, size) - 1), np.int32)
    batch = Batch(rewards, ids, where, tiers, margins, hacks, candidates)
    return tied(batch) if row.needs_candidates else batch


def tied(b: Batch) -> Batch:
    """Every trace of a candidate gets what the candidate's first trace has."""
    first = np.array([int(np.flatnonzero(b.candidates == c)[0]) for c in b.candidates])
    shared = ("rewards", "ids", "tiers", "hacks")
    return b._replace(**{name: getattr(b, name)[first] for name in shared})
