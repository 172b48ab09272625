"""Advantages for RL post-training: rewards in, one number per sample out, one contract for all.

Rewards are one flat batch with integer group ids. A sample whose reward is not a measurement is
masked with ``where=False``: it leaves every statistic and its advantage is exactly 0.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from advlib import losses
from advlib._checks import AdvantageWarning
from advlib.estimators._gar import GarCredit, gar, hack_floor
from advlib.estimators._group import (
    batch_leave_one_out,
    batch_mean,
    constant_groups,
    group_mean,
    leave_one_out,
)
from advlib.estimators._kernel import gs1, kernel_baseline
from advlib.estimators._kernel_shrunk import Shrinkage, ShrunkGs1, gs1_shrunk
from advlib.estimators._length_buckets import length_buckets
from advlib.estimators._rank import rank_margin, win_rate
from advlib.estimators._scaled import grpo, max_rl
from advlib.estimators._token import gae
from advlib.groups import Groups, encode_groups
from advlib.masking import broadcast_to_tokens, masked_mean, masked_whiten

if TYPE_CHECKING:
    from advlib import adapters, diagnostics, experiments, grading, masking, text, trainer

__version__ = "0.1.0"

__all__ = [
    "AdvantageWarning",
    "GarCredit",
    "Groups",
    "Shrinkage",
    "ShrunkGs1",
    "adapters",
    "batch_leave_one_out",
    "batch_mean",
    "broadcast_to_tokens",
    "constant_groups",
    "diagnostics",
    "encode_groups",
    "experiments",
    "gae",
    "gar",
    "grading",
    "group_mean",
    "grpo",
    "gs1",
    "gs1_shrunk",
    "hack_floor",
    "kernel_baseline",
    "leave_one_out",
    "length_buckets",
    "losses",
    "masked_mean",
    "masked_whiten",
    "masking",
    "max_rl",
    "rank_margin",
    "text",
    "trainer",
    "win_rate",
]

_LAZY = (
    "adapters",
    "diagnostics",
    "experiments",
    "grading",
    "text",
    "trainer",
)  # they need more than jax and numpy


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return importlib.import_module(f"advlib.{name}")
    raise AttributeError(f"module 'advlib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
