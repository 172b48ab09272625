"""A thin trainer: a policy, a sampler, a step and a loop, in JAX and optax."""

from __future__ import annotations

from advlib.trainer._batch import Batch, rollout_batch, text_batch
from advlib.trainer._checkpoints import Checkpoint, Checkpoints
from advlib.trainer._decoder import DecoderConfig, decoder
from advlib.trainer._forward import make_log_probs
from advlib.trainer._log_probs import log_distribution
from advlib.trainer._loop import Trained, train
from advlib.trainer._order import question_order
from advlib.trainer._placement import make_mesh, place_batch, place_state
from advlib.trainer._policy import Policy
from advlib.trainer._prompts import Prompts, pad_prompts
from advlib.trainer._responses import Evaluated, evaluate
from advlib.trainer._rollouts import Rollouts, rollout_record
from advlib.trainer._sampler import FINISH_REASONS, Sampler, Samples, make_sampler
from advlib.trainer._settings import TrainSettings
from advlib.trainer._step import (
    TrainState,
    UpdateMetrics,
    init_state,
    make_train_step,
)
from advlib.trainer._stop import TrainingStopped
from advlib.trainer._tokenizer import ByteTokenizer, Tokenizer

__all__ = [
    "FINISH_REASONS",
    "Batch",
    "ByteTokenizer",
    "Checkpoint",
    "Checkpoints",
    "DecoderConfig",
    "Evaluated",
    "Policy",
    "Prompts",
    "Rollouts",
    "Sampler",
    "Samples",
    "Tokenizer",
    "TrainSettings",
    "TrainState",
    "Trained",
    "TrainingStopped",
    "UpdateMetrics",
    "decoder",
    "evaluate",
    "init_state",
    "log_distribution",
    "make_log_probs",
    "make_mesh",
    "make_sampler",
    "make_train_step",
    "pad_prompts",
    "place_batch",
    "place_state",
    "question_order",
    "rollout_batch",
    "rollout_record",
    "text_batch",
    "train",
]
