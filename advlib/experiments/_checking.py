"""Designs that cannot do what they are for, each with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, combinations
from typing import Any

from advlib import diagnostics
from advlib.experiments import _checking_inputs, gate
from advlib.experiments._power import low_power
from advlib.experiments._sources import Jsonl, ReasoningGym, Templates
from advlib.experiments.spec import Arm, CriterionSpec, Spec, Tolerance

LARGEST = 1_000_000  # more of anything is a slip of the pen, and fills the memory
LOWEST_TEMPERATURE = 1e-3
LOWEST_ALPHA = 1e-9
START = "start"  # the policy that all arms begin from, where a criterion names it
IN_GROUPS = ("group_mean", "grpo", "leave_one_out")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def problems(spec: Spec) -> list[str]:
    """Everything that speaks against running a spec; empty where nothing does."""
    parts = (
        _numbers, _checking_inputs.policy, _checking_inputs.compute, _arms, _seeds,
        _checking_inputs.questions, _preflight, _calibration, _gate, _decision,
    )  # fmt: skip
    return list(chain.from_iterable(part(spec) for part in parts))


def _numbers(spec: Spec) -> Iterator[str]:
    wanted: list[tuple[str, Any, float]] = [
        ("steps", spec.steps, 1),
        ("batch_size", spec.batch_size, 2),
        ("sampling.max_prompt", spec.sampling.max_prompt, 1),
        ("sampling.max_new", spec.sampling.max_new, 1),
        ("calibration.tasks times rollouts", spec.calibration.tasks * spec.calibration.rollouts, 1),
        ("calibration.resamples", spec.calibration.resamples, 2),
        ("pilot.steps", spec.pilot.steps, 2),
        ("pilot.eval_items", spec.pilot.eval_items, 1),
        ("restoration.prompts", spec.restoration.prompts, 1),
        ("restoration.atol", spec.restoration.atol, 0),
        ("eval.n_examples", spec.eval.n_examples, 1),
        ("eval.batch_size", spec.eval.batch_size, 1),
        ("optimizer.eps", spec.optimizer.eps, 0),
    ]
    if spec.warm_start is not None:
        warm = spec.warm_start
        wanted += [
            ("warm_start.steps", warm.steps, 1),
            ("warm_start.batch_size", warm.batch_size, 1),
        ]
        if not 0 <= warm.right_share <= 1:
            yield f"warm_start.right_share must be from 0 to 1; got {warm.right_share:g}"
        if not warm.learning_rate > 0:
            yield f"warm_start.learning_rate must be above 0; got {warm.learning_rate:g}"
    if isinstance(spec.environment, Templates | ReasoningGym):
        wanted += [
            ("environment.num_train", spec.environment.num_train, 1),
            ("environment.num_held_out", spec.environment.num_held_out, 1),
        ]
    for name, value, low in wanted:
        if value < low:
            yield f"{name} must be at least {low:g}; got {value:g}"
        elif value > LARGEST:
            yield f"{name} must be at most {LARGEST:,}; got {value:,}"
    for name, value in (
        ("optimizer.lr", spec.optimizer.lr),
        ("optimizer.clip", spec.optimizer.clip),
        ("budget.max_wall_minutes", spec.budget.max_wall_minutes),
    ):
        if value is not None and not value > 0:
            yield f"{name} must be above 0; got {value:g}"
    if not spec.sampling.temperature >= LOWEST_TEMPERATURE:
        yield (
            f"sampling.temperature must be at least {LOWEST_TEMPERATURE:g}; "
            f"got {spec.sampling.temperature:g}"
        )
    if not 0 <= spec.kl.coef <= LARGEST:
        yield f"kl.coef must be from 0 to {LARGEST:,}; got {spec.kl.coef:g}"
    for name, value in (("beta1", spec.optimizer.beta1), ("beta2", spec.optimizer.beta2)):
        if not 0 <= value < 1:
            yield f"optimizer.{name} must be from 0 to below 1; got {value:g}"
    if spec.pilot.steps > spec.steps:
        yield f"pilot.steps must be at most steps, {spec.steps}; got {spec.pilot.steps}"
    if spec.pilot.eval_items > spec.eval.n_examples:
        yield (
            f"pilot.eval_items must be at most eval.n_examples, {spec.eval.n_examples}; "
            f"got {spec.pilot.eval_items}"
        )


def _arms(spec: Spec) -> Iterator[str]:
    if len(spec.arms) < 2:
        yield f"arms must be at least two to be compared; got {len(spec.arms)}"
    names = [arm.name for arm in spec.arms]
    for name in dict.fromkeys(names):
        if not _NAME.fullmatch(name) or name == START:
            yield f"arms: {name!r} is no name of an arm: letters, digits, _ - . and not {START!r}"
        if names.count(name) > 1:
            yield f"arms: {names.count(name)} arms are called {name!r}"
    for name, other in combinations(dict.fromkeys(names), 2):
        if name.casefold() == other.casefold():
            yield f"arms: {name!r} and {other!r} would be one folder where case is not told apart"
    for arm in spec.arms:
        yield from _arm(arm, spec.batch_size)


def _arm(arm: Arm, batch_size: int) -> Iterator[str]:
    where = f"arm {arm.name!r}"
    if arm.group_size < 1 or arm.groups_per_batch < 1:
        yield f"{where}: group_size and groups_per_batch must be at least 1"
    elif arm.group_size * arm.groups_per_batch != batch_size:
        yield (
            f"{where}: {arm.group_size} rollouts of {arm.groups_per_batch} questions are "
            f"{arm.group_size * arm.groups_per_batch} a step, and batch_size is {batch_size}; arms "
            "that differ in samples are no comparison of advantages"
        )
    if arm.group_size == 1 and arm.advantage in IN_GROUPS:
        yield f"{where}: {arm.advantage} compares within a group, and groups of one compare nothing"
    if arm.advantage == "gs1" and not arm.temperature >= 1e-4:
        yield f"{where}: temperature must be at least 1e-4; got {arm.temperature:g}"


def _seeds(spec: Spec) -> Iterator[str]:
    if not spec.seeds or len(set(spec.seeds)) < len(spec.seeds):
        yield f"seeds must be one or more different ones; got {list(spec.seeds)}"
    parts = ("policy", "environment", "warm_start", "calibration")
    given = [(f"{part}.seed", getattr(getattr(spec, part), "seed", 0)) for part in parts]
    for name, seed in [*given, *(("seeds", seed) for seed in spec.seeds)]:
        # Of a larger one the random keys see the last 32 bits alone.
        if not 0 <= seed < 2**32:
            yield f"{name} must be from 0 to 4294967295; got {seed}"
    decided = spec.decision_rule.seeds
    missing = sorted(set(decided) - set(spec.seeds))
    if missing or len(set(decided)) < len(decided):
        yield f"decision_rule.seeds must be among seeds, each once; got {list(decided)}"


def _preflight(spec: Spec) -> Iterator[str]:
    tolerances = spec.correctness_preflight.tolerances
    for name in ("advantages", "loss", "gradient"):
        one: Tolerance = getattr(tolerances, name)
        where = f"correctness_preflight.tolerances.{name}"
        if one.atol < 0 or one.rtol < 0:
            yield f"{where}: atol and rtol must be at least 0; got {one.atol:g} and {one.rtol:g}"
        if one.min_cosine is not None and not -1 <= one.min_cosine <= 1:
            yield f"{where}: min_cosine must be from -1 to 1; got {one.min_cosine:g}"


def _calibration(spec: Spec) -> Iterator[str]:
    calibration = spec.calibration
    if calibration.split == "held_out":
        yield (
            "calibration.split is 'held_out': questions that the kernel is chosen on must not "
            "decide between the arms; use 'train'"
        )
    if calibration.rollouts < 2:
        yield f"calibration.rollouts must be at least 2; got {calibration.rollouts}"
    if calibration.tasks < spec.batch_size:
        yield (
            f"calibration.tasks must be at least batch_size, {spec.batch_size}, to tell about such "
            f"batches; got {calibration.tasks}"
        )


def _gate(spec: Spec) -> Iterator[str]:
    wanted = spec.activation_gate
    kernels = [arm for arm in spec.arms if arm.advantage == "gs1"]
    if not wanted.applicable:
        if wanted.checks or wanted.fallback_kernel:
            yield "activation_gate is not applicable, and yet has checks or a fallback_kernel"
        if kernels:
            yield (
                f"arm {kernels[0].name!r} trains with a kernel, and activation_gate is not "
                "applicable: whether the kernel does anything would never be asked"
            )
        return
    if len(kernels) != 1:
        yield (
            f"activation_gate is about one arm with a kernel, and {len(kernels)} arms have one; "
            "without any, set applicable to false"
        )
        return
    try:
        diagnostics.activation_gate([gate.check_of(bound) for bound in wanted.checks], {})
    except (TypeError, ValueError) as error:
        yield f"activation_gate: {error}"
        return
    if wanted.fallback_kernel == kernels[0].kernel:
        yield f"activation_gate.fallback_kernel is the arm's own kernel, {kernels[0].kernel}"
    known = gate.known_metrics(spec)
    planned = gate.planned_metrics(spec)
    for bound in wanted.checks:
        if bound.metric not in known:
            yield (
                f"activation_gate: nothing computes {bound.metric!r}; there are "
                f"{', '.join(sorted(known))}"
            )
        elif bound.metric in planned:
            value = planned[bound.metric]
            result = diagnostics.activation_gate([gate.check_of(bound)], planned)
            if not result.passed:
                yield (
                    f"activation_gate: {bound.metric} will be {value:g} by the design, which the "
                    "check refuses"
                )


def _decision(spec: Spec) -> Iterator[str]:
    rule = spec.decision_rule
    if not LOWEST_ALPHA <= rule.alpha < 1:
        yield f"decision_rule.alpha must be from {LOWEST_ALPHA:g} to below 1; got {rule.alpha:g}"
        return
    names = [criterion.id for criterion in rule.criteria]
    if not names or len(set(names)) < len(names):
        yield f"decision_rule.criteria must be one or more, each with an id of its own; got {names}"
        return
    if rule.expected.discordance < abs(rule.expected.difference) or rule.expected.discordance > 1:
        yield "decision_rule.expected: discordance must be from |difference| to 1"
        return
    for criterion in rule.criteria:
        found = list(_criterion(criterion, spec))
        yield from found or low_power(criterion, spec)


def _criterion(criterion: CriterionSpec, spec: Spec) -> Iterator[str]:
    where = f"criterion {criterion.id!r}"
    known = {START, *(arm.name for arm in spec.arms)}
    for name in criterion.weights:
        if name not in known:
            yield f"{where}: weights name {name!r}; there are {', '.join(sorted(known))}"
    if sorted(criterion.weights.values()) != [-1, 1]:
        yield f"{where}: weights must be 1 for one arm and -1 for another"
    low, high = criterion.bounds
    if not low < high:
        yield f"{where}: bounds must be low < high; got {low:g} and {high:g}"
    elif high - low > LARGEST:
        yield f"{where}: bounds must span at most {LARGEST:,}; got {low:g} and {high:g}"
    elif abs(criterion.margin) >= high - low:
        yield (
            f"{where}: margin {criterion.margin:g} lies at or beyond the largest difference that "
            f"scores from {low:g} to {high:g} can have"
        )
    lowest = 0.0
    if isinstance(spec.environment, Jsonl):
        lowest = -spec.environment.format_penalty
    if low > lowest or high < 1:
        yield f"{where}: scores range from {lowest:g} to 1, bounds are {low:g} and {high:g}"
