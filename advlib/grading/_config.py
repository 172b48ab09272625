"""Settings of a grading run, and those that do not go together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from advlib.grading._group import Mode
from advlib.grading._quoted import escaped, quoted

REWARD_SAMPLERS = frozenset({"difficulty_pool", "dynamic_sampling", "filter_groups"})
"""Samplers that choose tasks or groups by their rewards, by the names that trainers give them."""


class GarConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of groupwise advantage redistribution.

    Attributes:
        mode: "rewards" redistributes rewards by a ranking; "advantages" reads the ranking alone.
        f_min: least credit, in [0, 1].
        lambda_max: largest factor, at least 1.
        timeout: seconds that a group may wait for a grader and be graded.
        max_concurrent: groups that are graded at a time.
        max_off_policy_steps: how many steps a rollout may be old, None for any number.
        length_penalty: the trainer's own, to be refused: None or False for none.
        sampler: the trainer's task sampler, None where unknown; refused in advantages mode where it
            is one of ``REWARD_SAMPLERS``.
    """

    mode: Mode = "rewards"
    f_min: float = 0.5
    lambda_max: float = 1.5
    timeout: float = 1800.0
    max_concurrent: int = 32
    max_off_policy_steps: int | None = None
    length_penalty: Any = None
    sampler: str | None = None


def check_config(config: GarConfig | Mapping[str, Any]) -> GarConfig:
    """Check settings, and refuse those that contradict each other.

    Args:
        config: settings, or a mapping of them, as read from a file.

    Returns:
        The settings, with numbers of the declared types.

    Raises:
        ValueError: a setting is unknown, of another type or out of range; a length penalty is set;
            in advantages mode, the sampler chooses by reward. The message says why.
    """
    given = msgspec.structs.asdict(config) if isinstance(config, GarConfig) else dict(config)
    try:
        checked = msgspec.convert(given, GarConfig)
    except msgspec.ValidationError as error:
        raise ValueError(f"settings: {escaped(str(error), 160)}") from None
    _within("f_min", checked.f_min, 0 <= checked.f_min <= 1, "in [0, 1]")
    _within("lambda_max", checked.lambda_max, 1 <= checked.lambda_max < math.inf, "at least 1")
    _within("timeout", checked.timeout, 0 < checked.timeout < math.inf, "positive, in seconds")
    _within("max_concurrent", checked.max_concurrent, checked.max_concurrent >= 1, "at least 1")
    steps = checked.max_off_policy_steps
    _within("max_off_policy_steps", steps, steps is None or steps >= 0, "None or at least 0")
    if checked.length_penalty not in (None, False):
        raise ValueError(_PENALTY[checked.mode])
    if checked.mode == "advantages" and checked.sampler in REWARD_SAMPLERS:
        raise ValueError(
            f"sampler {quoted(checked.sampler)} chooses by reward, and mode 'advantages' reads no "
            "rewards: what it drops or repeats would not be what the ranking can teach"
        )
    return checked


_PENALTY = {
    "rewards": (
        "length_penalty cannot be used in mode 'rewards': GAR replaces it. Which of the passes "
        "deserve more is what the ranking says; a penalty would move rewards about the mean first"
    ),
    "advantages": (
        "length_penalty cannot be used in mode 'advantages': GAR replaces it. Rewards are not "
        "read, so that a penalty on them would change nothing"
    ),
}


def _within(name: str, value: float | None, holds: bool, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {wanted}; got {value}")
