"""The one table that every reader makes and every later step reads.

One row is one sampled rollout (one trace, where an episode holds several). The reader fills what
the file says and leaves the rest null; it never invents a value. A row whose reward is not a
measurement stays in the table with ``valid`` false and the reason beside it.
"""

from __future__ import annotations

import pyarrow as pa

# Why a row's reward is not a measurement. `invalid_reason` holds one of these, or null.
MASKED = "masked"  # the file says so: mask_sample, or its older place
FAILED = "failed"  # the rollout, its environment or its judge failed
MISSING = "missing_reward"  # no reward field, or nothing ever scored
NULL = "null_reward"  # the field is there and null
NAN = "nan_reward"
INFINITE = "infinite_reward"
NOT_A_NUMBER = "not_a_number_reward"  # a string, a list, an object without a named score
NOT_TRAINABLE = "not_trainable"  # a frozen agent's trace: scored, but no sample of the policy
# No reader writes these two; a table that was scored under a policy for failures holds them.
MASKED_BY_POLICY = "masked_by_policy"  # its failure kind was named
DROPPED_GROUP = "dropped_group"  # a failure in its group was named, and all of the group left

INVALID_REASONS = (
    MASKED,
    FAILED,
    MISSING,
    NULL,
    NAN,
    INFINITE,
    NOT_A_NUMBER,
    NOT_TRAINABLE,
    MASKED_BY_POLICY,
    DROPPED_GROUP,
)
"""Every word that ``invalid_reason`` can hold."""


def _field(name: str, kind: pa.DataType, meaning: str, *, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={"description": meaning})


SCHEMA = pa.schema(
    [
        _field(
            "rollout_id",
            pa.string(),
            "the file's own id, else '<source_file>:<source_line>'; unique in the table",
            nullable=False,
        ),
        _field("episode_id", pa.string(), "episode that this trace belongs to; null if the same"),
        _field("environment", pa.string(), "environment's name", nullable=False),
        _field(
            "task",
            pa.string(),
            "the task inside its environment: the file's own key, else a hash of the prompt",
            nullable=False,
        ),
        _field(
            "group",
            pa.string(),
            "rollouts to compare: the file's own group id, else environment + task (+ step)",
            nullable=False,
        ),
        _field("prompt", pa.string(), "text of the prompt: every message before the first sample"),
        _field("reward", pa.float64(), "the reward as written; null where there is none"),
        _field(
            "reward_components",
            pa.map_(pa.string(), pa.float64()),
            "named parts of the reward, as written; null where a part was never scored",
        ),
        _field("valid", pa.bool_(), "the reward is a measurement of the policy", nullable=False),
        _field("invalid_reason", pa.string(), "why it is not: one of INVALID_REASONS"),
        _field("failure_kind", pa.string(), "what failed, a label; does not mask by itself"),
        _field("failure_reason", pa.string(), "free text; never a label, never a mask"),
        _field(
            "mask_source",
            pa.string(),
            "which fields masked the row, joined by '+': mask_sample, instance_config.mask_sample, "
            "failure_class, no_persist",
        ),
        _field("truncated", pa.bool_(), "the response was cut by a limit"),
        _field("response_length", pa.int64(), "tokens sampled by the policy"),
        _field("policy", pa.string(), "model that sampled the response"),
        _field("step", pa.int64(), "training step"),
        _field("kind", pa.string(), "train, eval or another word of the file"),
        _field("advantage", pa.float64(), "the advantage that the producer recorded"),
        _field("tier", pa.int32(), "a grader's tier, 0 best; null where unranked"),
        _field("margins", pa.list_(pa.float64()), "a grader's gap below each tier of the group"),
        _field("hack", pa.string(), "a grader's word: none, suspected or confirmed"),
        _field("format", pa.string(), "the format that was read", nullable=False),
        _field("source_file", pa.string(), "file of the raw row, as it was named", nullable=False),
        _field("source_line", pa.int64(), "line of the raw row, from 1", nullable=False),
    ]
)
"""The columns of the table, each with its meaning under ``description`` in its metadata."""
