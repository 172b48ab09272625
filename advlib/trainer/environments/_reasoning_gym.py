"""Tasks of reasoning-gym, by name, each with its own scorer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advlib import _checks
from advlib.trainer._options import count, needed
from advlib.trainer.environments._protocol import Question, question_set
from advlib.trainer.environments._split import Split, divide
from advlib.trainer.environments._wording import around


def reasoning_gym_tasks(
    datasets: str | Sequence[str] | Mapping[str, Mapping[str, Any]],
    *,
    num_train: int = 4096,
    num_held_out: int = 1000,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    wording: str = "{}",
) -> Split:
    """Questions of one data set of reasoning-gym, or of a mixture.

    The response is scored by the data set itself, on what stands in ``<answer>`` tags or, without
    them, on the whole response; part marks come as they are.

    Args:
        datasets: a name, several, or the settings of each by name.
        num_train: questions to train on.
        num_held_out: questions held out, by a hash of their text.
        weights: share of each data set by name, in any unit; even by default.
        seed: of the draws.
        wording: of the prompt; ``{question}`` is where the question goes, or ``{}`` in a wording
            without that.

    Returns:
        A :class:`Split`.

    Raises:
        ImportError: reasoning-gym is not installed.
        TypeError, ValueError: an unknown name or setting, a number out of range, or too few
            different questions.
    """
    gym = needed("reasoning_gym", "a reasoning-gym environment", "tasks")
    composite = needed("reasoning_gym.composite", "a reasoning-gym environment", "tasks")
    utils = needed("reasoning_gym.utils", "a reasoning-gym environment", "tasks")
    if isinstance(datasets, str):
        datasets = [datasets]
    settings = dict(datasets) if isinstance(datasets, Mapping) else {n: {} for n in datasets}
    if not settings:
        raise ValueError("datasets must name at least one; got none")
    for name in weights or {}:
        if name not in settings:
            raise ValueError(f"weights name {name!r}, which is not among the data sets")
    shares = {
        name: _checks.number(f"weights[{name!r}]", weight, 0.0)
        for name, weight in (weights or {}).items()
    }
    before, after = around(wording)
    count("num_train", num_train, 1)
    count("num_held_out", num_held_out, 1)
    size = 100 * (num_train + num_held_out) + 10_000  # drawn on demand; only the ones used cost
    specs = [
        composite.DatasetSpec(name=name, weight=shares.get(name, 1.0), config=dict(config))
        for name, config in settings.items()
    ]
    try:
        drawn = gym.create_dataset("composite", size=size, seed=seed, datasets=specs)
    except (AssertionError, TypeError, ValueError) as error:
        told = ", ".join(settings)
        raise ValueError(f"reasoning-gym refuses {told}: {error}") from error

    def score(question: Question, response: str) -> float:
        answer = utils.extract_answer(response)
        return float(
            drawn.score_answer(response.strip() if answer is None else answer, question.answer)
        )

    def questions() -> Iterator[Question]:
        for place in range(size):
            entry = drawn[place]
            kind = entry["metadata"]["source_dataset"]
            yield Question(f"{kind}/{place}", f"{before}{entry['question']}{after}", entry, kind)

    lists = divide(questions(), num_train, num_held_out, what="reasoning-gym")
    return Split(*(question_set(found, score) for found in lists))
