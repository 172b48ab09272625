"""TF-IDF features of prompts: fitted once on training prompts, the same ever after."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from advlib.text._prompts import prompt_texts

FORMAT = "advlib.tfidf/1"
# scikit-learn's own default, and the same without tokens that hold a digit.
TOKENS = re.compile(r"(?u)\b\w\w+\b")
WORDS = re.compile(r"(?u)\b[^\W\d][^\W\d]+\b")


class Tfidf(NamedTuple):
    """Words and their weights, as :func:`fit_tfidf` found them.

    Attributes:
        columns: column by word.
        idf: (D,) weight of each word, ln((1 + n) / (1 + df)) + 1.
        words_only: tokens with a digit in them are no words.
    """

    columns: dict[str, int]
    idf: np.ndarray
    words_only: bool

    def transform(self, prompts: Sequence[Any]) -> Any:
        """Features of prompts.

            x_w = count_w · idf_w,   divided by its length

        A prompt without any known word has a row of zeros: cosine 0 to every other prompt, so that
        its kernel baseline is the plain mean of the others.

        Args:
            prompts: strings or chat messages, one prompt a row.

        Returns:
            (rows, D) CSR matrix, float64; the numbers of scikit-learn's TfidfVectorizer. D is at
            least 1.

        Raises:
            TypeError: a row is no prompt.
        """
        texts = prompt_texts(prompts)
        distinct = dict.fromkeys(texts)
        if 2 * len(distinct) <= len(texts):  # several rollouts a prompt: each is read once
            place_of = {text: i for i, text in enumerate(distinct)}
            return self._rows(list(distinct))[[place_of[text] for text in texts]]
        return self._rows(texts)

    def _rows(self, texts: Sequence[str]) -> Any:
        from scipy.sparse import csr_matrix

        find, column = self._pattern.findall, self.columns.get
        places: list[int] = []
        ends = [0]
        for text in texts:
            for word in find(text.lower()):
                place = column(word)
                if place is not None:
                    places.append(place)
            ends.append(len(places))
        width = max(1, len(self.idf))
        counts = csr_matrix(
            (np.ones(len(places)), np.array(places, np.int32), np.array(ends, np.int32)),
            shape=(len(ends) - 1, width),
        )
        counts.sum_duplicates()
        if not len(places):
            return counts
        counts.data *= self.idf[counts.indices]
        row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
        lengths = np.sqrt(np.bincount(row, weights=counts.data**2, minlength=counts.shape[0]))
        counts.data /= lengths[row]
        return counts

    @property
    def _pattern(self) -> re.Pattern[str]:
        return WORDS if self.words_only else TOKENS

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the features to a JSON file; :func:`load` reads it back to the last bit.

        Args:
            path: file to write; an older one is replaced.
        """
        target = Path(path)
        record = {
            "format": FORMAT,
            "words_only": self.words_only,
            "words": sorted(self.columns, key=self.columns.__getitem__),
            "idf": self.idf.tolist(),
        }
        partial = target.with_name(target.name + ".part")
        partial.write_text(json.dumps(record) + "\n", encoding="ascii")
        partial.replace(target)


def fit_tfidf(prompts: Sequence[Any], *, words_only: bool = False) -> Tfidf:
    """Learn words and their weights from training prompts, as scikit-learn does.

    The default is that of TfidfVectorizer: lower-case tokens of two or more letters, digits and
    underscores. Numbers are tokens there, and a number that few prompts share has a large weight:
    one neighbour that happens to hold it can take the whole baseline.

    Args:
        prompts: strings or chat messages, one prompt a row.
        words_only: leave out tokens that hold a digit.

    Returns:
        A :class:`Tfidf`; without any word where no token is left.

    Raises:
        TypeError: a row is no prompt.
        ValueError: there is no prompt.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = prompt_texts(prompts)
    if not texts:
        raise ValueError("prompts must hold at least one; got none")
    pattern = WORDS if words_only else TOKENS
    if not any(pattern.search(text.lower()) for text in texts):  # scikit-learn refuses these
        return Tfidf({}, np.zeros(0), words_only)
    vectorizer = TfidfVectorizer(token_pattern=pattern.pattern).fit(texts)
    columns = {word: int(column) for word, column in vectorizer.vocabulary_.items()}
    return Tfidf(columns, np.asarray(vectorizer.idf_, np.float64), words_only)


def load(path: str | os.PathLike[str]) -> Tfidf:
    """Read features that :meth:`Tfidf.save` wrote. The file is JSON: reading it runs nothing.

    Args:
        path: the file.

    Returns:
        The :class:`Tfidf`, equal to the one saved.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not such a file; the message names it.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise ValueError(f"{path}: must be a file of format {FORMAT!r}; got {found!r}")
    words: Any = record.get("words")
    idf: Any = record.get("idf")
    words_only = record.get("words_only")
    if not (_are_words(words) and _are_weights(idf) and len(words) == len(idf)):
        raise ValueError(f"{path}: words must be different strings, idf one positive number each")
    if not isinstance(words_only, bool):
        raise ValueError(f"{path}: words_only must be true or false; got {words_only!r}")
    columns = {word: column for column, word in enumerate(words)}
    return Tfidf(columns, np.array(idf, np.float64), words_only)


def _are_words(words: Any) -> bool:
    strings = isinstance(words, list) and all(isinstance(word, str) for word in words)
    return strings and len(set(words)) == len(words)


def _are_weights(weights: Any) -> bool:
    return isinstance(weights, list) and all(
        isinstance(weight, float | int) and 0 < weight < np.inf for weight in weights
    )
