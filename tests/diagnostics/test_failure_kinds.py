from __future__ import annotations

import warnings

import pytest

from advlib.diagnostics import FAILURE_KINDS, UnknownFailureKind, check_failure_kind
from advlib.diagnostics import _failure_kinds as module


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Names warned about in another test are new here."""
    monkeypatch.setattr(module, "_warned", set())


def test_the_registry():
    assert len(FAILURE_KINDS) == 22
    assert all(FAILURE_KINDS.values())
    assert all(module._NAMESPACED.fullmatch(f"x:{name}") for name in FAILURE_KINDS)
    with pytest.raises(TypeError):
        FAILURE_KINDS["mine"] = "read-only"  # type: ignore[index]


@pytest.mark.parametrize(
    "name", [None, *FAILURE_KINDS, "swe:eval_oom", "usersim:scorer_inconclusive"]
)
def test_known_names_pass_in_silence(name):
    assert check_failure_kind(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *("Judge_Failed", "judge-failed", "judge_failed\n", "a:b:c", ":x", "x:", "", "judge"),
        *("swe:eval_oom\n", "Swe:oom", "swe:Oom", "1a:b", "a: b", "ａ:b"),
    ],
)
def test_any_other_name_is_kept_and_told_once(name):
    with pytest.warns(UnknownFailureKind) as told:
        assert check_failure_kind(name) == name
    assert len(told) == 1
    assert repr(name) in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_failure_kind(name) == name


def test_each_name_has_its_own_warning():
    with pytest.warns(UnknownFailureKind) as told:
        list(map(check_failure_kind, ("one", "two", "one", "two")))
    assert len(told) == 2


def test_what_is_no_string_is_refused():
    with pytest.raises(TypeError, match="got int"):
        check_failure_kind(3)  # type: ignore[arg-type]


def test_labels_of_older_files_are_known_as_such():
    assert module.standing("judge_invalid") == "legacy"
    assert module.standing("kill_shaped") == "registered"
    assert module.standing("swe:oom") == "namespaced"
    assert module.standing("Judge") == "unknown"
