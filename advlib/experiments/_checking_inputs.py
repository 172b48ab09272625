"""Policies, questions and devices that an experiment cannot begin with."""

from __future__ import annotations

from collections.abc import Iterator

from advlib.experiments._sources import (
    Embedded,
    GivenTasks,
    Jsonl,
    PublishedPolicy,
    Templates,
)
from advlib.experiments.spec import Spec
from advlib.trainer import decoder
from advlib.trainer.environments._wording import around

LARGEST_SIZE = 16_384  # of a part of the embedded decoder, and of LoRA
LARGEST_PENALTY = 1_000_000


def questions(spec: Spec) -> Iterator[str]:
    """Against the questions, or their number."""
    environment = spec.environment
    if spec.warm_start is not None and not isinstance(environment, Templates):
        yield "warm_start needs a teacher, and only the environment 'templates' has one"
    if isinstance(environment, GivenTasks | Jsonl):
        if isinstance(environment, Jsonl):
            if environment.train == environment.held_out:
                yield "environment: train and held_out are one file, and must share no question"
            if not 0 <= environment.format_penalty <= LARGEST_PENALTY:
                yield (
                    f"environment.format_penalty must be from 0 to {LARGEST_PENALTY:,}; "
                    f"got {environment.format_penalty:g}"
                )
            yield from _wording(environment.wording)
        return
    if isinstance(environment, Templates):
        names = environment.templates
        if (
            not names
            or len(set(names)) < len(names)
            or not set(names) <= set(Templates().templates)
        ):
            yield (
                f"environment.templates must be one or more of {', '.join(Templates().templates)}, "
                f"each once; got {list(names)}"
            )
    else:
        if not environment.datasets:
            yield "environment.datasets must name at least one; got none"
        yield from _wording(environment.wording)
    if spec.eval.n_examples > environment.num_held_out:
        yield (
            f"eval.n_examples must be at most environment.num_held_out, "
            f"{environment.num_held_out}; got {spec.eval.n_examples}"
        )
    left = environment.num_train - spec.calibration.tasks
    most = max((arm.groups_per_batch for arm in spec.arms), default=1)
    if left < most:
        yield (
            f"environment.num_train, {environment.num_train}, less the {spec.calibration.tasks} "
            f"questions of the calibration leaves {left} for steps of {most}"
        )


def _wording(wording: str) -> Iterator[str]:
    try:
        around(wording)
    except ValueError as error:
        yield f"environment.{error}"


def policy(spec: Spec) -> Iterator[str]:
    """Against the policy that all arms begin from."""
    wanted = spec.policy
    if isinstance(wanted, Embedded):
        for name in ("width", "layers", "heads", "kv_heads", "head_width", "hidden"):
            size = getattr(wanted, name)
            if size > LARGEST_SIZE:
                yield f"policy.{name} must be at most {LARGEST_SIZE:,}; got {size:,}"
                return
        try:
            decoder(wanted.config(1))
        except ValueError as error:
            yield f"policy: {error}"
    if isinstance(wanted, PublishedPolicy):
        if spec.warm_start is not None:
            yield "warm_start is for a policy that knows nothing, and this one is a published model"
        if wanted.lora_rank is not None and not 1 <= wanted.lora_rank <= LARGEST_SIZE:
            yield (
                f"policy.lora_rank must be from 1 to {LARGEST_SIZE:,}, or null; "
                f"got {wanted.lora_rank}"
            )
        if wanted.lora_alpha is not None and not wanted.lora_alpha > 0:
            yield (
                f"policy.lora_alpha must be above 0, or nothing is trained; "
                f"got {wanted.lora_alpha:g}"
            )


def compute(spec: Spec) -> Iterator[str]:
    """Against the way a step is computed."""
    wanted = spec.compute
    for name, value in (("micro_batches", wanted.micro_batches), ("shard", wanted.shard)):
        if value is not None and value < 1:
            yield f"compute.{name} must be at least 1; got {value}"
    if wanted.micro_batches > 0 and spec.batch_size % wanted.micro_batches:
        yield (
            f"compute.micro_batches must divide batch_size, {spec.batch_size}; "
            f"got {wanted.micro_batches}"
        )
    limit = wanted.disagreement_limit
    if limit is not None and not limit > 0:
        yield f"compute.disagreement_limit must be above 0; got {limit:g}"
