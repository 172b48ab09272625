"""The text of prompts of every shape."""

from __future__ import annotations

import pytest

from advlib import text

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("", ""),
        ("How many?", "How many?"),
        ([], ""),
        ({"role": "user", "content": "How many?"}, "How many?"),
        (
            [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}],
            "Be brief.\n\nHow many?",
        ),
        ([{"role": "user", "content": None}, {"role": "user", "content": ""}], ""),
        ([{"role": "user", "content": [{"type": "text", "text": "Look:"}, IMAGE]}], "Look:"),
        ([{"role": "user", "content": [IMAGE]}], ""),
        ([{"role": "user", "content": ["a", {"type": "input_text", "text": "b"}]}], "a\n\nb"),
        ([{"type": "function_call_output", "output": "42"}], "42"),
        ("\ud835", "\ud835"),
    ],
)
def test_text_of_a_prompt(prompt, wanted):
    assert text.prompt_text(prompt) == wanted
    assert text.prompt_texts([prompt]) == [wanted]


@pytest.mark.parametrize("prompt", [None, 3, b"bytes", 1.5])
def test_what_is_no_prompt_is_named(prompt):
    with pytest.raises(TypeError, match="row 1: a prompt must be a string or chat messages"):
        text.prompt_texts(["a", prompt])


@pytest.mark.parametrize("prompts", ["one prompt", {"role": "user", "content": "x"}])
def test_a_single_prompt_is_no_batch(prompts):
    with pytest.raises(TypeError, match="one prompt a row"):
        text.prompt_texts(prompts)


def test_the_adapters_read_the_same_text():
    from advlib.adapters._values import messages_text

    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, IMAGE]},
        {"role": "user", "content": ""},
    ]
    assert messages_text(messages) == text.prompt_text(messages)
