"""What every stage of a run has at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from advlib.experiments._estimators import Features, kernel_features
from advlib.experiments._folder import Folder
from advlib.experiments._setup import Setup
from advlib.experiments.spec import Kernel, Optimizer, Spec
from advlib.trainer import Prompts, Sampler, Samples, make_sampler
from advlib.trainer._options import needed
from advlib.trainer._placement import place_batch
from advlib.trainer._responses import batches, encode_prompts, responses
from advlib.trainer.environments import Question

Told = Callable[[str], None]


class Work(NamedTuple):
    """A run under way.

    Attributes:
        spec: what is run.
        setup: policy and questions.
        folder: where it is recorded.
        sampler: draws as in training.
        greedy: takes the most likely token.
        optimizer: of every arm; one object, so that arms share what is compiled.
        training_prompts: what kernels are fitted on.
        told: called with a line on what begins.
        progress: whether arms show a bar.
    """

    spec: Spec
    setup: Setup
    folder: Folder
    sampler: Sampler
    greedy: Sampler
    optimizer: optax.GradientTransformation
    training_prompts: tuple[str, ...]
    told: Told
    progress: bool

    def features(self, kernel: Kernel) -> Features:
        """Features of a kernel, fitted on the training questions."""
        return kernel_features(kernel, self.training_prompts)

    def start_params(self) -> Path:
        """Where the parameters that all arms begin from are."""
        return self.folder.path / "start" / "params.npz"


class Drawn(NamedTuple):
    """Responses to questions.

    Attributes:
        prompts: of the last batch that was drawn.
        samples: of that batch.
        texts: (n,) responses, of all batches.
    """

    prompts: Prompts
    samples: Samples
    texts: tuple[str, ...]


def begin_work(spec: Spec, setup: Setup, folder: Folder, *, told: Told, progress: bool) -> Work:
    """Compile nothing yet, and read the training questions once.

    Raises:
        ImportError: what the arms will need is not installed; names the extra.
    """
    needed("orbax.checkpoint", "an experiment")  # before the warm start, not after it
    tokenizer, sampling = setup.tokenizer, spec.sampling

    def sampler(temperature: float) -> Sampler:
        return make_sampler(
            setup.policy,
            max_prompt=sampling.max_prompt,
            max_new=sampling.max_new,
            end_tokens=tokenizer.end_tokens,
            forbidden=tokenizer.forbidden,
            temperature=temperature,
            pad_token=tokenizer.pad_token,
            compute_dtype=spec.compute.dtype,
            mesh=setup.mesh,
        )

    training = setup.train.prompts(range(len(setup.train)))
    return Work(
        spec,
        setup,
        folder,
        sampler(sampling.temperature),
        sampler(0.0),
        make_optimizer(spec.optimizer),
        tuple(question.text for question in training),
        told,
        progress,
    )


@lru_cache(maxsize=8)
def make_optimizer(wanted: Optimizer) -> optax.GradientTransformation:
    """Clipping, then Adam."""
    return optax.chain(
        optax.clip_by_global_norm(wanted.clip),
        optax.adam(wanted.lr, b1=wanted.beta1, b2=wanted.beta2, eps=wanted.eps),
    )


def draw(
    work: Work,
    params: Any,
    questions: Sequence[Question],
    *,
    batch_size: int,
    greedy: bool = False,
    seed: int = 0,
) -> Drawn:
    """Responses to questions, in batches of one size; a row does not depend on its batch."""
    tokenizer = work.setup.tokenizer
    key = jax.random.key(seed)
    texts: list[str] = []
    for start, filled, wanted in batches(questions, batch_size):
        prompts = encode_prompts(
            tokenizer,
            filled,
            work.spec.sampling.max_prompt,
            rows=np.arange(start, start + batch_size),
        )
        placed = Prompts(*place_batch(tuple(prompts), work.setup.mesh))
        samples = (work.greedy if greedy else work.sampler)(params, placed, key)
        samples = Samples(*(np.asarray(part) for part in samples))  # type: ignore[arg-type]
        texts += responses(tokenizer, samples)[:wanted]
    return Drawn(prompts, samples, tuple(texts))
