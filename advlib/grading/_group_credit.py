"""From verdict and rewards to one advantage a candidate."""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

import advlib
from advlib import _checks
from advlib.grading._group import Mode
from advlib.grading._quoted import quoted
from advlib.grading._standing import VerdictArrays, verdict_arrays
from advlib.grading._verdict import Verdict, check_type

Statistics = Literal["traces", "candidates"]


def group_credit(
    verdict: Verdict,
    rewards: Mapping[str, float | None] | None,
    mode: Mode,
    *,
    f_min: float = 0.5,
    lambda_max: float = 1.5,
) -> dict[str, float]:
    """Advantages of one group's candidates.

    In rewards mode by :func:`advlib.gar`: confirmed hacks drop to the group's lowest reward, and
    the ranking redistributes what lies above the mean. A group whose rewards are all equal gets
    zeros. In advantages mode by :func:`advlib.rank_margin`: scores of tiers, centred; a candidate
    in no tier gets 0.

    Args:
        verdict: checked, and after :func:`check_citations`: its confirmed hacks count as such.
        rewards: each label's reward, in any unit; None where there was no measurement, which then
            votes nowhere and gets 0. Booleans are 0 and 1. None in advantages mode.
        mode: "rewards" or "advantages".
        f_min: least credit, in [0, 1].
        lambda_max: largest factor, at least 1.

    Returns:
        The advantage of each label of the verdict, in its order, in reward units. Computed in
        float64 on the CPU, whatever the configuration of JAX, in any thread, and while ``jit`` or
        ``grad`` traces the caller (not inside ``shard_map``). The order of the candidates does not
        matter to the last bit.

    Raises:
        OverflowError: rewards lie so far apart that an advantage does not fit float64.
        TypeError: ``verdict`` is no Verdict, ``rewards`` no mapping, or a reward no number.
        ValueError: labels differ from the verdict's; a reward is NaN or infinite; rewards are
            missing in rewards mode or given in advantages mode; an option is out of range.

    Source: groupwise advantage redistribution, Eq. 3 and advantages mode.
    """
    _checks.one_of("mode", mode, ("rewards", "advantages"))
    f_min = _checks.number("f_min", f_min, 0, 1)
    lambda_max = _checks.number("lambda_max", lambda_max, 1)
    check_type(verdict)
    labels = sorted(entry.label for entry in verdict.candidates)
    arrays = verdict_arrays(verdict, labels)
    if mode == "advantages":
        if rewards is not None:
            raise ValueError("rewards are not read in advantages mode; pass None")
        advantages = rank_credit(arrays)
    else:
        if rewards is None:
            raise ValueError("rewards must be given in rewards mode; got None")
        if not isinstance(rewards, Mapping):
            raise TypeError(f"rewards must map labels to rewards; got {type(rewards).__name__}")
        if rewards.keys() != set(labels):
            apart = sorted(set(labels).symmetric_difference(rewards))
            raise ValueError(
                f"rewards and verdict must have the same labels; in one only: {quoted(apart[0])}"
            )
        values = [measured(f"rewards[{label!r}]", rewards[label]) for label in labels]
        advantages = redistributed(values, arrays, f_min=f_min, lambda_max=lambda_max).advantages
    found = dict(zip(labels, advantages, strict=True))
    return {entry.label: found[entry.label] for entry in verdict.candidates}


def measured(name: str, reward: Any) -> float | None:
    """A reward as a float, None where there was no measurement.

    Args:
        name: what the message calls it.
        reward: a real number, a boolean, or None.

    Raises:
        TypeError: it is something else.
        ValueError: it is NaN or infinite.
    """
    if reward is None:
        return None
    if not isinstance(reward, numbers.Real | np.bool_):
        raise TypeError(f"{name} must be a number or None; got {type(reward).__name__}")
    try:
        value = float(reward)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value}. What was not measured is None")
    return value


class Redistributed(NamedTuple):
    """Advantages by row, and the λ of Eq. 3."""

    advantages: list[float]
    scale: float


def redistributed(
    rewards: Sequence[float | None],
    arrays: VerdictArrays,
    *,
    f_min: float,
    lambda_max: float,
    candidate_ids: np.ndarray | None = None,
    statistics: Statistics | None = None,
) -> Redistributed:
    """:func:`advlib.gar` of one group; a row without a reward is masked.

    Raises:
        OverflowError: rewards lie so far apart that an advantage does not fit float64.
    """
    where = np.array([reward is not None for reward in rewards], bool)
    if where.sum() < 2:  # nothing to compare with, which is no mistake of the caller
        return Redistributed([0.0] * len(rewards), 1.0)
    filled = np.array([0.0 if reward is None else reward for reward in rewards])
    # Divided by a power of two, which changes no digit: the whole range of float64 is usable.
    _, exponent = math.frexp(np.abs(filled).max())
    with _concrete_float64():
        credit = advlib.gar(
            np.ldexp(filled, -exponent),
            arrays.tiers,
            hacks=arrays.hacks,
            f_min=f_min,
            lambda_max=lambda_max,
            where=where,
            candidate_ids=candidate_ids,
            statistics=statistics,
        )
        advantages, scale = np.asarray(credit.advantages), float(credit.scale[0])
    with np.errstate(over="ignore"):
        advantages = np.ldexp(advantages, exponent)
    if not np.isfinite(advantages).all():
        apart = f"rewards from {filled[where].min():g} to {filled[where].max():g}"
        raise OverflowError(f"{apart} lie too far apart: the credit does not fit float64")
    return Redistributed(advantages.tolist(), scale)


def rank_credit(arrays: VerdictArrays) -> list[float]:
    """:func:`advlib.rank_margin` of one group."""
    if len(arrays.tiers) < 2:
        return [0.0] * len(arrays.tiers)
    with _concrete_float64():
        advantages = advlib.rank_margin(arrays.tiers, arrays.margins, hacks=arrays.hacks)
        return np.asarray(advantages).tolist()


@contextlib.contextmanager
def _concrete_float64() -> Iterator[None]:
    """Concrete numbers in float64 on the CPU, also while the caller traces in float32.

    All three are settings of this thread and of this block. On a CPU, so that a run gives the same
    bits beside whatever accelerator it trains on.
    """
    try:
        device = jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to use an accelerator only
        device = None
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.default_device(device):
        yield
