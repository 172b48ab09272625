"""From a spec to what can be run: a policy, questions to train on, others to calibrate on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from advlib.experiments._policies import Given, begin_mesh, begin_policy, located, model_files
from advlib.experiments._sources import (
    GivenTasks,
    Jsonl,
    PublishedPolicy,
    ReasoningGym,
    Templates,
)
from advlib.experiments.reading import SpecError
from advlib.experiments.spec import Spec
from advlib.trainer import Policy, Tokenizer, tasks
from advlib.trainer.environments import (
    Environment,
    Question,
    Score,
    Split,
    jsonl_tasks,
    reasoning_gym_tasks,
)


@dataclass(frozen=True)
class Some:
    """Some questions of an environment.

    Attributes:
        whole: the environment.
        places: of the questions in it.
    """

    whole: Environment
    places: tuple[int, ...]

    def __len__(self) -> int:
        """Number of questions."""
        return len(self.places)

    def prompts(self, indices: Sequence[int]) -> list[Question]:
        """The questions at these places of the part."""
        return self.whole.prompts([self.places[index] for index in indices])

    def score(self, question: Question, response: str) -> Score:
        """As the whole environment says."""
        return self.whole.score(question, response)


class Setup(NamedTuple):
    """What a run needs.

    Attributes:
        policy: pure functions.
        params: before any training.
        tokenizer: of the policy.
        train: questions for the arms.
        calibration: questions of the training part that no arm trains on.
        held_out: the items of the evaluation.
        mesh: devices that batches and parameters are split over; None for one.
        files: SHA-256 of each file of a published model by its name.
    """

    policy: Policy
    params: Any
    tokenizer: Tokenizer
    train: Environment
    calibration: Environment
    held_out: Environment
    mesh: Mesh | None
    files: dict[str, str]


def set_up(spec: Spec, *, folder: Path, given: Given) -> Setup:
    """Make policy and questions.

    Args:
        spec: that was checked.
        folder: that relative paths of the spec start from.
        given: what the caller hands over.

    Returns:
        A :class:`Setup`; no item of the evaluation has the text of another question.

    Raises:
        SpecError: something given is missing, a model cannot be read, the devices there are do not
            divide a batch, there are too few questions, a prompt is too long or cannot be encoded,
            or an item of the evaluation is among the training questions.
        ImportError: an optional package is missing; names the extra.
    """
    mesh = begin_mesh(spec)
    split = _environment(spec, folder, given)
    size, items = len(split.train), spec.eval.n_examples
    if len(split.held_out) < items:
        raise SpecError(f"eval.n_examples is {items}, and {len(split.held_out)} are held out")
    most = max(arm.groups_per_batch for arm in spec.arms)
    if size < spec.calibration.tasks + most:
        raise SpecError(
            f"{size} training questions are too few for {spec.calibration.tasks} of the "
            f"calibration and steps of {most}"
        )
    order = np.random.default_rng([spec.calibration.seed, 3]).permutation(size).tolist()
    cut = spec.calibration.tasks
    calibration = Some(split.train, tuple(sorted(order[:cut])))
    # A question that stands twice in a file must not be in both parts.
    known = {_bare(question) for question in calibration.prompts(range(cut))}
    rest = sorted(order[cut:])
    others = zip(rest, split.train.prompts(rest), strict=True)
    train = Some(split.train, tuple(place for place, one in others if _bare(one) not in known))
    if len(train) < most:
        raise SpecError(
            f"{len(train)} different training questions are left by the calibration, and a step "
            f"takes {most}"
        )
    parts = (train, calibration, Some(split.held_out, tuple(range(items))))
    asked = [part.prompts(range(len(part))) for part in parts]
    _check_apart(asked[0] + asked[1], asked[2])
    policy, params, tokenizer = begin_policy(spec, folder, given, mesh)
    for question in (question for part in asked for question in part):
        length = _length(tokenizer, question)
        if length > spec.sampling.max_prompt:
            raise SpecError(
                f"sampling.max_prompt is {spec.sampling.max_prompt}, and question "
                f"{question.id!r} has {length} tokens"
            )
    _check_room(spec, policy, params)
    if spec.warm_start is not None:
        _check_answers(asked[0], tokenizer, spec.sampling.max_new)
    files = {}
    if isinstance(spec.policy, PublishedPolicy):
        files = model_files(located(folder, spec.policy.path))
    return Setup(policy, params, tokenizer, *parts, mesh, files)


def _length(tokenizer: Tokenizer, question: Question) -> int:
    """Tokens of a question; a chat template can fail in as many ways as a program."""
    try:
        return len(tokenizer.encode(question.text))
    except Exception as error:
        raise SpecError(
            f"policy: its tokenizer cannot encode question {question.id!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


def missing(spec: Spec, folder: Path) -> list[str]:
    """Files and folders that a spec names and that are not there, as it names them."""
    named = []
    if isinstance(spec.policy, PublishedPolicy):
        named.append(spec.policy.path)
    if isinstance(spec.environment, Jsonl):
        named += [spec.environment.train, spec.environment.held_out]
    return [name for name in named if not os.path.exists(located(folder, name))]


def _check_room(spec: Spec, policy: Policy, params: Any) -> None:
    """Prompt and response must fit the policy; nothing is computed."""
    columns = spec.sampling.max_prompt + spec.sampling.max_new
    try:
        jax.eval_shape(lambda params: policy.init_cache(params, 1, columns), params)
    except ValueError as error:
        raise SpecError(f"sampling: {error}") from error


def _check_answers(questions: list[Question], tokenizer: Tokenizer, room: int) -> None:
    """A teacher's answer must fit a response, with its end."""
    opening = len(tokenizer.encode(""))
    longest = max(questions, key=lambda question: len(question.answer))
    needed = len(tokenizer.encode(longest.answer)) - opening + 1
    if needed > room:
        raise SpecError(
            f"sampling.max_new is {room}, and the answer to {longest.id!r} has {needed} tokens"
        )


def _check_apart(trained: list[Question], examined: list[Question]) -> None:
    known = {_bare(question) for question in trained}
    both = [question for question in examined if _bare(question) in known]
    if both:
        raise SpecError(
            f"{len(both)} items of the evaluation are training questions too, {both[0].id!r} first"
        )
    if len({question.id for question in examined}) < len(examined):
        raise SpecError("items of the evaluation must have ids of their own")


def _bare(question: Question) -> str:
    """The text without what white space alone makes different."""
    return " ".join(question.text.split())


def _environment(spec: Spec, folder: Path, given: Given) -> Split:
    wanted = spec.environment
    try:
        match wanted:
            case Templates():
                return tasks.template_tasks(
                    num_train=wanted.num_train,
                    num_held_out=wanted.num_held_out,
                    templates=wanted.templates,
                    seed=wanted.seed,
                )
            case ReasoningGym():
                return reasoning_gym_tasks(
                    wanted.datasets,
                    num_train=wanted.num_train,
                    num_held_out=wanted.num_held_out,
                    weights=wanted.weights,
                    seed=wanted.seed,
                    wording=wanted.wording,
                )
            case Jsonl():
                files = (located(folder, wanted.train), located(folder, wanted.held_out))
                return Split(
                    *(
                        jsonl_tasks(
                            path,
                            question=wanted.question,
                            answer=wanted.answer,
                            wording=wanted.wording,
                            format_penalty=wanted.format_penalty,
                        )
                        for path in files
                    )
                )
            case GivenTasks():
                if given.environment is None:
                    raise SpecError(
                        f"environment {wanted.name!r} is to be given by the caller, and is not"
                    )
                return given.environment
    except SpecError:
        raise
    except ValueError as error:
        raise SpecError(f"environment: {error}") from error
