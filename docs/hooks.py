"""Build hooks of the documentation site.

Three things that MkDocs does not do by itself. A public name without a docstring stops the build.
Formulas become MathML while the site is built, so that a page needs no script and no network.
Notebooks are shown on a page, and can be downloaded from it.
"""

from __future__ import annotations

import ast
import html
import importlib
import inspect
import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any, get_origin

PUBLIC_MODULES = (
    "advlib",
    "advlib.masking",
    "advlib.adapters",
    "advlib.diagnostics",
    "advlib.grading",
    "advlib.text",
    "advlib.trainer",
    "advlib.trainer.environments",
    "advlib.trainer.tasks",
    "advlib.trainer.warm_start",
    "advlib.experiments",
)

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"

_ROLE = re.compile(r":(?:func|class|meth|data):<code>(?P<name>[\w.]+)</code>")
_SHOWN = re.compile(r"<!-- notebook: (\w+) -->")
_FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def undocumented(module_names: tuple[str, ...] = PUBLIC_MODULES) -> list[str]:
    """Return the public names that have no docstring of their own.

    Args:
        module_names: modules that are imported; the names in their ``__all__`` are public.

    Returns:
        Dotted names; a module without ``__all__`` or without a docstring is named as well.
    """
    missing = []
    for module_name in module_names:
        module = importlib.import_module(module_name)
        if not inspect.getdoc(module):
            missing.append(module_name)
        if not hasattr(module, "__all__"):
            missing.append(f"{module_name}.__all__")
        for name in getattr(module, "__all__", ()):
            if not _documented(module, name):
                missing.append(f"{module_name}.{name}")
    return missing


def _documented(module: Any, name: str) -> bool:
    thing = getattr(module, name)
    if inspect.isclass(thing):
        # `__dict__`, since a subclass without a docstring inherits its parent's. NamedTuple writes
        # "Name(field, field)" when the author wrote nothing.
        text = thing.__dict__.get("__doc__") or ""
        return bool(text) and not text.startswith(f"{thing.__name__}(")
    # A type such as Literal["a", "b"] can be called as far as Python knows, and is a constant.
    is_type = get_origin(thing) is not None
    if inspect.ismodule(thing) or (callable(thing) and not is_type):
        return bool(inspect.getdoc(thing))
    return name in _documented_constants(module.__name__.split(".")[0])


def _documented_constants(package: str) -> set[str]:
    """Names that a string or a comment explains where they are assigned, in loaded modules."""
    names: set[str] = set()
    for loaded in list(sys.modules):
        path = getattr(sys.modules[loaded], "__file__", None)
        if loaded.split(".")[0] != package or not path or not path.endswith(".py"):
            continue
        source = Path(path).read_text(encoding="utf-8")
        lines = source.splitlines()
        body = ast.parse(source).body
        for statement, follower in itertools.pairwise([*body, None]):
            if isinstance(statement, ast.Assign):
                targets = [t.id for t in statement.targets if isinstance(t, ast.Name)]
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                targets = [statement.target.id]
            else:
                continue
            explained = (
                isinstance(follower, ast.Expr)
                and isinstance(follower.value, ast.Constant)
                and isinstance(follower.value.value, str)
            ) or lines[statement.lineno - 2].startswith("#")
            if explained:
                names.update(targets)
    return names


def to_mathml(page: str) -> str:
    """Return the page with every formula that arithmatex marked written as MathML."""
    from latex2mathml.converter import convert

    def replace(match: re.Match[str]) -> str:
        block = match["tag"] == "div"
        mathml = convert(html.unescape(match["tex"]), display="block" if block else "inline")
        tag = match["tag"]
        return f'<{tag} class="formula">{mathml}</{tag}>'

    return _FORMULA.sub(replace, page)


def link_roles(page: str) -> str:
    """Return the page with references such as ``:func:`name` `` in docstrings made links."""

    def replace(match: re.Match[str]) -> str:
        name = match["name"].removeprefix("advlib.")
        for module in reversed(PUBLIC_MODULES):
            if name in importlib.import_module(module).__all__:
                name = f"{module}.{name}".removeprefix("advlib.")
                break
        shown = match["name"].rpartition(".")[2]
        return f'<autoref identifier="advlib.{name}" optional><code>{shown}</code></autoref>'

    return _ROLE.sub(replace, page)


def to_markdown(notebook: Path) -> str:
    """Return a notebook's text and code as Markdown, without its outputs and its title."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
        elif cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\A# .*\n", "", source))
    return "\n\n".join(parts)


def on_pre_build(config: Any) -> None:
    """Refuse to build while a public name has no docstring."""
    from mkdocs.exceptions import PluginError

    missing = undocumented()
    if missing:
        raise PluginError("public names without a docstring: " + ", ".join(missing))


def on_page_content(page_html: str, page: Any, config: Any, files: Any) -> str:
    """Write formulas as MathML and references as links; a formula left over stops the build."""
    from mkdocs.exceptions import PluginError

    result = link_roles(to_mathml(page_html))
    if "arithmatex" in result:
        raise PluginError(f"{page.file.src_path}: a formula was not converted")
    return result


def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks to the site."""
    from mkdocs.structure.files import File

    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        name = f"notebooks/{notebook.name}"
        files.append(File.generated(config, name, abs_src_path=str(notebook)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Put a notebook in the place of its marker."""
    return _SHOWN.sub(lambda match: to_markdown(NOTEBOOKS / f"{match[1]}.ipynb"), markdown)
