"""What an experiment is, before any of it runs: read from JSON, every key known.

The names are those of pre-registered RL comparisons: arms, an activation gate, a correctness
preflight, a calibration, a pilot, a decision rule. What the arms share stands once, so that they
cannot differ in anything but how samples are grouped and advantages computed.
"""

from __future__ import annotations

from typing import Literal

from advlib.experiments._sources import (
    Embedded,
    GivenPolicy,
    GivenTasks,
    Jsonl,
    Part,
    PublishedPolicy,
    ReasoningGym,
    Templates,
    WarmStart,
)

Kernel = Literal["tfidf", "words", "length"]
Advantage = Literal[
    "group_mean", "grpo", "leave_one_out", "batch_mean", "batch_leave_one_out", "gs1"
]


class Sampling(Part, frozen=True):
    """How responses are drawn in training and calibration; evaluation is greedy.

    Attributes:
        max_prompt: tokens of the longest prompt.
        max_new: tokens of the longest response, its end token counted.
        temperature: of the softmax.
    """

    max_prompt: int = 32
    max_new: int = 8
    temperature: float = 1.0


class Optimizer(Part, frozen=True):
    """The optimizer of every arm.

    Attributes:
        name: Adam, the only one.
        lr: learning rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added to the root of the second moment.
        clip: largest global norm of a gradient.
    """

    name: Literal["adam"] = "adam"
    lr: float = 3e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    clip: float = 1.0


class Divergence(Part, frozen=True):
    """How far the trained policy is from the starting one, on its own samples.

    Attributes:
        coef: β of the divergence in the loss of every arm; 0 leaves it out.
        measured: log it; a second set of parameters in memory, and a forward pass a step. Where the
            coefficient is above 0 it is logged in any case.
    """

    coef: float = 0.0
    measured: bool = True


class Compute(Part, frozen=True):
    """How a step is computed, the same for every arm; no estimator depends on it.

    Attributes:
        micro_batches: parts that a batch's gradient is computed in; more of them take less memory.
        dtype: that parameters are read in; their own by default.
        shard: over how many devices each parameter is split; batches are split over all devices
            there are. None takes one device.
        disagreement_limit: a log-probability by which sampler and trainer differ more stops an arm.
            1e-3 by default, 0.1 where parameters or frozen weights are read in half precision.
    """

    micro_batches: int = 1
    dtype: Literal["float32", "bfloat16"] | None = None
    shard: int | None = None
    disagreement_limit: float | None = None


class Arm(Part, frozen=True):
    """One way to group samples and to compute advantages.

    Attributes:
        name: letters, digits, ``_``, ``-`` and ``.``; "start" is the policy that all arms begin
            from.
        advantage: an estimator of advlib.
        group_size: rollouts a question.
        groups_per_batch: questions a step.
        kernel: of gs1: what makes prompts alike.
        temperature: of gs1's kernel.
    """

    name: str
    advantage: Advantage
    group_size: int
    groups_per_batch: int
    kernel: Kernel = "tfidf"
    temperature: float = 0.1


class Bound(Part, frozen=True):
    """A check of the gate: a metric within inclusive bounds.

    Attributes:
        metric: its name.
        min: smallest value that passes.
        max: largest value that passes.
        measures: what the number is, in words.
    """

    metric: str
    min: float | None = None
    max: float | None = None
    measures: str = ""


class ActivationGate(Part, frozen=True):
    """What must hold before the arms are trained in full.

    Attributes:
        applicable: false for a comparison without a kernel.
        checks: each must pass.
        fallback_kernel: the one kernel that may take the first one's place if its offline check
            fails.
        reason: why these checks, or why none.
    """

    applicable: bool = True
    checks: tuple[Bound, ...] = ()
    fallback_kernel: Kernel | None = None
    reason: str = ""


class Tolerance(Part, frozen=True):
    """How far the implementation may be from its float64 reference.

    Attributes:
        atol: absolute part.
        rtol: relative part.
        min_cosine: smallest cosine, or None.
    """

    atol: float
    rtol: float
    min_cosine: float | None = None


class Tolerances(Part, frozen=True):
    """One tolerance a quantity.

    Attributes:
        advantages: of the estimators.
        loss: of the summed loss.
        gradient: of the loss by the log-probabilities.
    """

    advantages: Tolerance = Tolerance(atol=1e-6, rtol=1e-5)
    loss: Tolerance = Tolerance(atol=1e-6, rtol=1e-5)
    gradient: Tolerance = Tolerance(atol=1e-5, rtol=1e-3, min_cosine=0.9999)


class CorrectnessPreflight(Part, frozen=True):
    """Our advantages, loss and gradient against a float64 reference, on one fixed batch.

    A divergence that ``kl`` adds to the loss is not in it.

    Attributes:
        required: false records the numbers and goes on whatever they are.
        tolerances: by quantity.
    """

    required: bool = True
    tolerances: Tolerances = Tolerances()


class Calibration(Part, frozen=True):
    """Rollouts of the starting policy on training questions that no arm trains on.

    Attributes:
        tasks: questions.
        rollouts: of each.
        resamples: batches drawn from the table.
        split: "train"; the held-out questions are for the decision alone.
        seed: of the samples and draws.
    """

    tasks: int = 64
    rollouts: int = 8
    resamples: int = 2000
    split: Literal["train", "held_out"] = "train"
    seed: int = 0


class Pilot(Part, frozen=True):
    """A short run of each arm, for times and for the metrics of the gate.

    Attributes:
        steps: of each arm.
        eval_items: held-out items whose evaluation is timed; their scores are not looked at.
    """

    steps: int = 3
    eval_items: int = 100


class Restoration(Part, frozen=True):
    """Whether every arm begins from the same parameters.

    Attributes:
        atol: largest difference of log-probabilities on the fixed prompts.
        prompts: their number.
    """

    atol: float = 1e-4
    prompts: int = 4


class Evaluation(Part, frozen=True):
    """Greedy answers of every final policy to the same held-out items, one grader.

    Attributes:
        n_examples: items, the first of the held-out part.
        metric: mean score of an item.
        batch_size: items at a time; no result depends on it.
    """

    n_examples: int = 1000
    metric: Literal["accuracy"] = "accuracy"
    batch_size: int = 200


class CriterionSpec(Part, frozen=True):
    """One question of the decision.

    Attributes:
        id: its name.
        weights: +1 for the treatment and -1 for the baseline, by name of an arm, or "start".
        margin: the difference that must be exceeded.
        metric: what is compared.
        bounds: lowest and highest possible score of an item.
    """

    id: str
    weights: dict[str, float]
    margin: float = -0.05
    metric: Literal["accuracy"] = "accuracy"
    bounds: tuple[float, float] = (0.0, 1.0)


class Expected(Part, frozen=True):
    """What the designer expects, for the power of the decision.

    Attributes:
        difference: true difference of treatment and baseline.
        discordance: share of items on which they disagree.
    """

    difference: float = 0.0
    discordance: float = 0.15


class DecisionRule(Part, frozen=True):
    """How the verdict follows from the scores.

    Attributes:
        criteria: decided together.
        method: the interval.
        alpha: chance that any of the intervals misses.
        seeds: of the arms whose mean score an item gets; all by default.
        unit: what the statement is about: other items, these checkpoints.
        expected: for the power.
        version: of this rule.
    """

    criteria: tuple[CriterionSpec, ...]
    method: Literal["paired_hoeffding"] = "paired_hoeffding"
    alpha: float = 0.05
    seeds: tuple[int, ...] = ()
    unit: Literal["fixed_checkpoint_items"] = "fixed_checkpoint_items"
    expected: Expected = Expected()
    version: Literal[1] = 1


class Budget(Part, frozen=True):
    """What the whole experiment may take.

    Attributes:
        max_wall_minutes: wall-clock time, projected after the pilot; None for no limit.
    """

    max_wall_minutes: float | None = None


class Spec(Part, frozen=True):
    """An experiment.

    Attributes:
        title: of the report.
        policy: what all arms begin from.
        environment: questions and their scorer.
        arms: at least two.
        decision_rule: fixed before the data.
        steps: updates of each arm.
        batch_size: rollouts a step, of each arm.
        seeds: each arm is trained once a seed; a seed sets the order of the questions and the
            samples.
        warm_start: before the comparison; None to begin from the policy as it is.
        sampling: of responses.
        optimizer: of every arm.
        kl: divergence from the starting policy.
        compute: how a step is computed.
        activation_gate: what must hold before the arms are trained in full.
        correctness_preflight: against a float64 reference.
        calibration: of the kernel.
        pilot: of times and gate metrics.
        restoration: of the initial parameters.
        eval: of the final policies.
        budget: of time.
        accept_low_power: run although the decision can hardly come out as validated.
        hypothesis: in words.
        method: in words.
        success_criterion: in words.
        version: of the format.
    """

    title: str
    policy: Embedded | PublishedPolicy | GivenPolicy
    environment: Templates | Jsonl | ReasoningGym | GivenTasks
    arms: tuple[Arm, ...]
    decision_rule: DecisionRule
    steps: int = 60
    batch_size: int = 32
    seeds: tuple[int, ...] = (0,)
    warm_start: WarmStart | None = None
    sampling: Sampling = Sampling()
    optimizer: Optimizer = Optimizer()
    kl: Divergence = Divergence()
    compute: Compute = Compute()
    activation_gate: ActivationGate = ActivationGate()
    correctness_preflight: CorrectnessPreflight = CorrectnessPreflight()
    calibration: Calibration = Calibration()
    pilot: Pilot = Pilot()
    restoration: Restoration = Restoration()
    eval: Evaluation = Evaluation()
    budget: Budget = Budget()
    accept_low_power: bool = False
    hypothesis: str = ""
    method: str = ""
    success_criterion: str = ""
    version: Literal[1] = 1
