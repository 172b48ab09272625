"""What makes two prompts alike: features by the name of a kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from advlib.cli._errors import Refusal, one_of
from advlib.cli._show import count

TEXT = ("tfidf", "words", "length")  # made of the prompts' text
TITLES = {"tfidf": "TF-IDF", "words": "TF-IDF, words only", "length": "prompt length"}
FIELDS = ("prompt", "question", "problem")  # where a line of plain JSON may hold its prompt


class Kernel(NamedTuple):
    """Features of prompts.

    Attributes:
        name: as on the command line.
        title: for people.
        features: (N, D) an array or a SciPy sparse matrix.
        told: how they were made, one phrase.
    """

    name: str
    title: str
    features: Any
    told: str


class Corpus(NamedTuple):
    """What TF-IDF is fitted on.

    Attributes:
        prompts: texts; none where the fit was read from a file.
        told: what they are.
        fitted: the fit that was read.
    """

    prompts: Sequence[str]
    told: str
    fitted: Any = None


def kernel(name: str, prompts: Sequence[str], corpus: Corpus) -> Kernel:
    """Features of prompts by a kernel that reads their text.

    Args:
        name: one of ``TEXT``.
        prompts: one text a row.
        corpus: what to fit the vectoriser on.

    Raises:
        Refusal: the kernel is not known, or the fit that was read is that of another one.
    """
    import advlib

    one_of(name, TEXT, "the kernel")
    title = TITLES[name]
    if name == "length":
        lengths = np.array([len(prompt) for prompt in prompts], np.float64)
        return Kernel(name, title, advlib.length_buckets(lengths), "8 buckets of characters")
    from advlib import text

    words_only = name == "words"
    fitted = corpus.fitted or text.fit_tfidf(corpus.prompts, words_only=words_only)
    if fitted.words_only != words_only:
        other = "words" if fitted.words_only else "tfidf"
        raise Refusal(f"--kernel {name}: {corpus.told}, for the kernel {other}")
    told = f"{count(len(fitted.idf), 'word')}, {corpus.told}"
    return Kernel(name, title, fitted.transform(prompts), told)


def corpus(path: str | None, prompts: Sequence[str], own: str) -> Corpus:
    """What to fit TF-IDF on: the prompts of a file, or the different ones at hand.

    Args:
        path: rollouts, JSON lines with a prompt each, or a fit that ``Tfidf.save`` wrote; None for
            the prompts at hand.
        prompts: those at hand.
        own: what these are called.

    Raises:
        Refusal: the file holds no prompt, or a line that is none.
        OSError: the file cannot be read.
    """
    if path is None:
        # An empty text stands for a missing one too, and says nothing about words either way.
        different = list(dict.fromkeys(text for text in prompts if text)) or [""]
        return Corpus(different, f"fitted on {own} ({count(len(different), 'different text')})")
    if (fitted := _saved(path)) is not None:
        return Corpus((), f"fitted before, in {path}", fitted)
    found = list(dict.fromkeys(_rollout_prompts(path) or _plain_prompts(path)))
    return Corpus(found, f"fitted on {count(len(found), 'prompt')} of {path}")


def embeddings(path: str, rows: int) -> Kernel:
    """Features from a file, one row a task in the order in which tasks first appear.

    Raises:
        Refusal: no array of numbers, or another number of rows.
        OSError: the file cannot be read.
    """
    try:
        features = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise Refusal(f"--kernel {path}: no NumPy array of numbers ({error})") from error
    if not isinstance(features, np.ndarray):
        features.close()
        raise Refusal(f"--kernel {path}: an archive of arrays; save one array with numpy.save")
    if features.ndim != 2 or features.dtype.kind not in "biuf":
        raise Refusal(
            f"--kernel {path}: wanted numbers of shape ({rows}, D), "
            f"got {features.dtype} of shape {features.shape}"
        )
    if len(features) != rows:
        raise Refusal(
            f"--kernel {path}: {count(len(features), 'row')} for {count(rows, 'task')}; "
            "wanted one row a task, in the order in which tasks first appear in the files"
        )
    if not np.isfinite(features).all():
        bad = int(np.flatnonzero(~np.isfinite(features).all(axis=1))[0])
        raise Refusal(f"--kernel {path}: row {bad + 1} holds NaN or infinity")
    name = os.path.basename(path)
    return Kernel(path, name, features, f"{features.shape[1]:,} dimensions, row i is task i")


def _saved(path: str) -> Any:
    """A fit from a file; None where it is no such file."""
    from advlib import text

    if os.path.isdir(path):
        return None
    with open(path, "rb") as file:
        if b'"advlib.tfidf/' not in file.read(64):
            return None
    try:
        return text.load(path)
    except ValueError as error:
        raise Refusal(f"--fit {error}") from error


def _rollout_prompts(path: str) -> list[str]:
    """The prompts of a rollout file; none where it is no such file."""
    from advlib import adapters
    from advlib.cli._read import read

    if not os.path.isdir(path):
        try:
            adapters.sniff(path)
        except adapters.FormatError:
            return []
    table = read([path], "auto").table
    found = [prompt for prompt in table["prompt"].to_pylist() if prompt is not None]
    if not found:
        raise Refusal(f"--fit {path}: {count(len(table), 'rollout')} and no prompt")
    return found


def _plain_prompts(path: str) -> list[str]:
    import msgspec

    decoder = msgspec.json.Decoder(dict[str, Any])
    wanted = "wanted rollouts, or JSON lines with " + ", ".join(f"`{name}`" for name in FIELDS)
    found = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = decoder.decode(line)
            except (msgspec.MsgspecError, RecursionError) as error:
                raise Refusal(f"--fit {path}:{number}: {wanted}; not JSON: {error}") from error
            text = next((record[name] for name in FIELDS if name in record), None)
            if not isinstance(text, str):
                raise Refusal(f"--fit {path}:{number}: {wanted}; no such field is a text")
            found.append(text)
    if not found:
        raise Refusal(f"--fit {path}: {wanted}; the file is empty")
    return found
