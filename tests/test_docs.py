"""The code in the documentation runs, and its results are the ones printed beside it.

Every block that starts with three backticks and ``python`` is executed, page by page, the blocks of
a page in order and in one namespace. A block marked ``py`` is shown and not executed. Results are
written in one of two ways:

- ``expression  # -> value`` (or on the line below): numbers to four decimals, anything else as
  ``str`` prints it; ``# -> raises ValueError: text`` for an error whose message holds the text.
- ``>>>`` lines, as in a doctest.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import re
import sys
import tokenize
import types
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"^(?P<indent> *)```python\b[^\n]*\n(?P<code>.*?)^(?P=indent)```\s*$", re.M | re.S
)


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of each executable block of a page."""
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        indent = len(match["indent"])
        yield line, "".join(row[indent:] or "\n" for row in match["code"].splitlines(True))


def expectations(code: str) -> dict[int, str]:
    """The text of each ``# ->`` comment by its line; one alone on its line, of the line above."""
    found = {}
    for token in tokenize.generate_tokens(StringIO(code).readline):
        if token.type == tokenize.COMMENT and token.string.startswith("# ->"):
            own_line = not token.line[: token.start[1]].strip()
            found[token.start[0] - own_line] = token.string.removeprefix("# ->").strip()
    return found


def run(code: str, namespace: dict[str, Any], where: str) -> int:
    """Execute one block, compare what it promises, and return how many results were compared."""
    if code.lstrip().startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(code, namespace, where, where, 0)
        report = StringIO()
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            test, out=report.write, clear_globs=False
        )
        namespace.update(test.globs)
        assert not outcome.failed, report.getvalue()
        return outcome.attempted
    wanted = expectations(code)
    for statement in ast.parse(code).body:
        expected = wanted.pop(statement.end_lineno or 0, None)
        source = ast.Module([statement], type_ignores=[])
        if expected is None:
            exec(compile(source, where, "exec"), namespace)
            continue
        assert isinstance(statement, ast.Expr), f"{where}: '# ->' must follow an expression"
        program = compile(ast.Expression(statement.value), where, "eval")
        if expected.startswith("raises "):
            name, _, message = expected.removeprefix("raises ").partition(": ")
            with pytest.raises(Exception, match=re.escape(message)) as caught:
                eval(program, namespace)
            assert caught.type.__name__ == name, f"{where}: {caught.value!r}"
        else:
            compare(eval(program, namespace), expected, where)
    assert not wanted, f"{where}: '# ->' must follow a statement of the block: {wanted}"
    return len(expectations(code))


def compare(actual: Any, expected: str, where: str) -> None:
    """Numbers are equal to four decimals and in shape; anything else reads the same."""
    try:
        value = np.asarray(ast.literal_eval(re.sub(r"\bnan\b", "None", expected)), np.float64)
    except (ValueError, SyntaxError, TypeError):
        assert str(actual) == expected, where
        return
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), value, rtol=0, atol=6e-5, err_msg=where
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_runs_and_says_the_truth(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a page may write the files that it reads
    namespace: dict[str, Any] = {"__name__": "page"}
    for line, code in blocks(page):
        # Blank lines in front, so that a traceback shows the line of the page.
        run("\n" * line + code, namespace, str(page))


def test_theory_pages_have_a_checked_example() -> None:
    for page in sorted((ROOT / "docs" / "theory").glob("*.md")):
        promised = sum(len(expectations(code)) for _, code in blocks(page))
        assert promised >= 3, f"{page.name} compares only {promised} results with the code"


@pytest.mark.parametrize(
    "code",
    ["1 + 1  # -> 3", "[1.0, 2.0]  # -> [1.0]", "'a'  # -> b", "1 + 1  # -> raises ValueError: x"],
)
def test_a_false_promise_is_found(code: str) -> None:
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(code, {}, "page")


def hooks() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_in_the_reference() -> None:
    pages = [p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "reference").glob("*.md")]
    shown = set(re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE))
    for module in map(importlib.import_module, hooks().PUBLIC_MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, types.ModuleType) or module.__name__ in shown:
                continue
            # A name that another public module offers too is shown once.
            homes = {module.__name__, getattr(thing, "__module__", "")}
            assert {f"{home}.{name}" for home in homes} & shown or homes & shown, name


def test_every_public_name_has_a_docstring() -> None:
    assert hooks().undocumented() == []


def test_a_public_name_without_docstring_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare_module.py").write_text(
        '"""A module."""\n'
        "from typing import NamedTuple\n"
        "__all__ = ['silent', 'spoken', 'Pair', 'Child', 'LIMIT', 'KNOWN']\n"
        "def silent(): ...\n"
        "def spoken():\n    'Says something.'\n"
        "class Pair(NamedTuple):\n    left: int\n"
        "class Child(ValueError): ...\n"
        "LIMIT = 3\n"
        "KNOWN = 4\n"
        "'''What is known.'''\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bare_module", raising=False)
    found = hooks().undocumented(("bare_module",))
    assert found == [f"bare_module.{name}" for name in ("silent", "Pair", "Child", "LIMIT")]
