"""TF-IDF features: scikit-learn's numbers, saved without pickle, and prompts without words."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

import advlib
from advlib import text

TRAIN = [
    "A farmer sells 48 eggs in April and 24 eggs in May. How many eggs?",
    "The train leaves at 9 and arrives at 17. How long does it take?",
    "Élodie's café sells tea; a cup costs 3 euros, and how_many cups are 2x3?",
    "Eggs, eggs, eggs!",
]


def same(ours, theirs):
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.indptr, theirs.indptr)
    np.testing.assert_array_equal(ours.indices, theirs.indices)
    np.testing.assert_array_equal(ours.data, theirs.data)
    assert ours.dtype == theirs.dtype


def test_equals_scikit_learn_to_the_last_bit():
    new = ["How many eggs does the farmer of May sell, 48?", "zz", "", "EGGS éLODIE 17", "2x3"]
    ours, theirs = text.fit_tfidf(TRAIN), TfidfVectorizer().fit(TRAIN)
    for prompts in (TRAIN, new, []):
        if prompts:
            same(ours.transform(prompts), theirs.transform(prompts))
    assert ours.columns == theirs.vocabulary_
    assert text.fit_tfidf(TRAIN).transform([]).shape == (0, len(ours.idf))


@given(st.lists(st.text(max_size=30), min_size=1, max_size=6), st.lists(st.text(), max_size=4))
def test_equals_scikit_learn_on_any_text(train, new):
    ours = text.fit_tfidf(train)
    if not ours.columns:
        with pytest.raises(ValueError, match="empty vocabulary"):
            TfidfVectorizer().fit(train)
        assert ours.transform([*train, *new]).nnz == 0
        return
    same(ours.transform([*train, *new]), TfidfVectorizer().fit(train).transform([*train, *new]))


def test_words_only_leaves_numbers_out():
    words = text.fit_tfidf(TRAIN, words_only=True)
    every = text.fit_tfidf(TRAIN)
    assert {"48", "24", "17", "2x3"} == set(every.columns) - set(words.columns)
    assert "how_many" in words.columns
    assert words.transform(["48 and 24, 2x3"]).nnz == 1  # "and"
    theirs = TfidfVectorizer(token_pattern=r"(?u)\b[^\W\d][^\W\d]+\b").fit(TRAIN)
    same(words.transform(TRAIN), theirs.transform(TRAIN))


def test_br_123_no_token_survives():
    features = text.fit_tfidf(["1 2", "3 4"])
    rows = features.transform(["1 2", "a b", ""])
    assert rows.shape == (3, 1)
    assert rows.nnz == 0
    rewards = np.array([1.0, 0.0, 0.0])
    plain = advlib.batch_leave_one_out(rewards)
    np.testing.assert_allclose(advlib.gs1(rows, rewards), plain, atol=1e-6)


def test_br_124_unseen_words_have_cosine_zero():
    features = text.fit_tfidf(["", "ab cd"]).transform(["", "ab cd", "zz"])
    cosine = (features @ features.T).toarray()
    np.testing.assert_allclose(cosine, np.diag([0.0, 1.0, 0.0]), atol=1e-15)


def test_br_112_lone_surrogates(tmp_path):
    prompts = ["\ud835 eggs", "eggs and \udc00tea\ud835"]
    features = text.fit_tfidf(prompts)
    features.save(tmp_path / "features.json")
    again = text.load(tmp_path / "features.json").transform(prompts)
    same(again, features.transform(prompts))
    assert again.nnz == 4


def test_chat_prompts_are_their_texts():
    chat = [[{"role": "user", "content": [{"type": "text", "text": line}]}] for line in TRAIN]
    features = text.fit_tfidf(chat)
    same(features.transform(chat), text.fit_tfidf(TRAIN).transform(TRAIN))
    with pytest.raises(TypeError, match="row 0"):
        features.transform([None])


@pytest.mark.parametrize("words_only", [False, True])
def test_saved_and_loaded(tmp_path, words_only):
    path = tmp_path / "features.json"
    features = text.fit_tfidf(TRAIN, words_only=words_only)
    path.write_text("older")
    features.save(path)
    again = text.load(str(path))
    assert again.columns == features.columns
    assert again.words_only is words_only
    np.testing.assert_array_equal(again.idf, features.idf)
    same(again.transform(TRAIN), features.transform(TRAIN))
    assert [file.name for file in tmp_path.iterdir()] == ["features.json"]
    json.loads(path.read_text(encoding="ascii"))


def test_saved_without_any_word(tmp_path):
    text.fit_tfidf(["1 2"]).save(tmp_path / "x.json")
    assert text.load(tmp_path / "x.json").transform(["a"]).shape == (1, 1)


GOOD = {"format": "advlib.tfidf/1", "words_only": False, "words": ["a", "b"], "idf": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "pickle"}, "must be a file of format"),
        ({"words": ["a", "a"]}, "different strings"),
        ({"words": ["a"]}, "one positive number each"),
        ({"words": ["a", 3]}, "different strings"),
        ({"words": "ab"}, "different strings"),
        ({"idf": [1.0, float("nan")]}, "one positive number each"),
        ({"idf": [1.0, float("inf")]}, "one positive number each"),
        ({"idf": [1.0, -1.0]}, "one positive number each"),
        ({"idf": [1.0, "2"]}, "one positive number each"),
        ({"idf": None}, "one positive number each"),
        ({"words_only": 1}, "true or false"),
    ],
)
def test_a_file_that_is_something_else_is_named(tmp_path, change, message):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(GOOD))
    assert text.load(path).columns == {"a": 0, "b": 1}
    path.write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(ValueError, match=message) as caught:
        text.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1]", "null", "not json", "{"])
def test_a_file_that_is_not_a_record_is_named(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"odd\.json"):
        text.load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"odd\.json"):
        text.load(path)
    with pytest.raises(OSError, match=r"absent\.json"):
        text.load(tmp_path / "absent.json")


def test_nothing_to_learn_from_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        text.fit_tfidf([])
    with pytest.raises(TypeError, match="one prompt a row"):
        text.fit_tfidf("a single prompt")


def test_importing_needs_no_scikit_learn():
    import subprocess

    program = "import sys, advlib.text, advlib.diagnostics; print('sklearn' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False"]


def test_repeated_prompts_are_the_same_rows() -> None:
    fitted = text.fit_tfidf(["alpha beta gamma", "beta delta", "gamma gamma epsilon"])
    few = ["beta gamma", "delta unseen", ""]
    wanted = fitted.transform(few).toarray()
    which = np.array([2, 0, 1, 0, 0, 2, 1, 1])
    got = fitted.transform([few[i] for i in which])
    assert got.format == "csr"
    np.testing.assert_array_equal(got.toarray(), wanted[which])
