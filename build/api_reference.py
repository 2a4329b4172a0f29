"""Write `common/docs/api.md`, the reference of all public names, from their docstrings.

.venv/bin/python build/api_reference.py            write the page
.venv/bin/python build/api_reference.py --check    exit with 1 if it is out of date
"""

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent, indent
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
SOURCE: Final = ROOT / "common" / "src"
PAGE: Final = ROOT / "common" / "docs" / "api.md"
LIBRARIES: Final = ("deviceplugin", "testing", "simulator", "checks", "conformance")
"""Packages whose ``__all__`` is public. Every module of the kit is public too."""
HEADER: Final = """\
# API reference

Every public name with its docstring, written by `build/api_reference.py`: edit the docstrings, not
this page. [Plugins](plugins.md) and [devices](devices.md) introduce the names that a plugin needs.
"""

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


class Public(NamedTuple):
    """A public name and its definition."""

    name: str
    definition: Definition
    text: str
    """Its docstring."""


@cache
def tree(path: Path) -> ast.Module:
    """Return the parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def file_of(module: str) -> Path:
    """Return the file of a module, by its dotted name."""
    path = SOURCE.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def libraries() -> list[str]:
    """Return the dotted names of all public modules, in the order of the page."""
    first, *others = LIBRARIES
    kit = SOURCE / first / "kit"
    parts = {path.stem for path in kit.glob("*.py")} | {
        path.parent.name for path in kit.glob("*/__init__.py")
    }
    shared = sorted(f"{first}.kit.{part}" for part in parts if not part.startswith("_"))
    return [first, *shared, *(f"{first}.{name}" for name in others)]


def documented(body: list[ast.stmt]) -> Iterator[tuple[Definition, str, str]]:
    """Yield the definitions in ``body``, each with its name and docstring."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node, node.name, ast.get_docstring(node) or ""
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            below = after.value if isinstance(after, ast.Expr) else None
            text = below.value if isinstance(below, ast.Constant) else ""
            yield node, ast.unparse(target), cleandoc(text) if isinstance(text, str) else ""


def definition(module: str, name: str) -> Public | None:
    """Return the definition of ``name`` in ``module``; None if ``name`` is itself a module."""
    path = file_of(module)
    if not path.exists():
        return None
    here = [each for each in documented(tree(path).body) if each[1] == name]
    if here:
        node, _, text = here[-1]  # below its overloads
        if not text and isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            other = definition(module, node.value.id)  # another name of it
            return other and other._replace(name=name)
        return Public(name, node, text)
    for each in ast.walk(tree(path)):
        if isinstance(each, ast.ImportFrom) and each.module:
            for alias in each.names:
                if name == (alias.asname or alias.name):
                    found = definition(each.module, alias.name)
                    return found and found._replace(name=name)
    return None


def public(module: str) -> list[Public]:
    """Return the public names of ``module``: those in ``__all__``, or all without underscore."""
    for node, name, _ in documented(tree(file_of(module)).body):
        if name == "__all__" and isinstance(node, ast.Assign):
            found = (definition(module, each) for each in ast.literal_eval(node.value))
            return [each for each in found if each is not None]
    return [
        Public(name, node, text)
        for node, name, text in documented(tree(file_of(module)).body)
        if text and not name.startswith("_")
    ]


def prose(text: str) -> str:
    """Return a docstring as Markdown."""
    parts = re.split(
        r"(?m)^(Raises|Attributes|Args):\n", text.replace("``", "`").replace("::\n", ":\n")
    )
    shown = [parts[0].strip()]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        listed = re.sub(r"(?m)^(\w+): ", r"* `\1`: ", dedent(body))
        shown.append(f"{title}:\n\n{listed.strip()}")
    return "\n\n".join(filter(None, shown))


def signature(node: ast.FunctionDef, name: str, *, method: bool) -> str:
    """Return the signature of a function."""
    arguments = ast.unparse(node.args)
    kinds = {ast.unparse(each) for each in node.decorator_list}
    if "property" in kinds:
        return f"{name}: {ast.unparse(node.returns) if node.returns else 'Any'}"
    if method and "staticmethod" not in kinds:
        arguments = re.sub(r"^(self|cls)(, )?(/, )?", "", arguments)
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({arguments}){result}".replace('"', "")


def field(node: ast.AnnAssign) -> str:
    """Return the name, type and default of a field."""
    default = "" if node.value is None else ast.unparse(node.value)
    shown = f" = {default}" if default and not default.startswith("field(") else ""
    return f"{ast.unparse(node.target)}: {ast.unparse(node.annotation)}{shown}"


def members(node: ast.ClassDef) -> Iterator[str]:
    """Yield the page's entries for the parts of a class."""
    for part, name, text in documented(node.body):
        if name.startswith("_"):
            continue
        if isinstance(part, ast.AnnAssign):
            below = prose(text)
            yield f"* `{field(part)}`" + (f"\n\n{indent(below, '  ')}" if below else "")
        elif isinstance(part, ast.FunctionDef) and text:
            below = indent(prose(text), "  ")
            yield f"* `{signature(part, name, method=True)}`\n\n{below}"


def entry(each: Public) -> str:
    """Return the page's entry for one name."""
    node = each.definition
    shown = [f"### {each.name}"]
    if isinstance(node, ast.FunctionDef):
        shown.append(f"```text\n{signature(node, each.name, method=False)}\n```")
    elif isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        shown.append(f"```text\nclass {each.name}{f'({bases})' if bases else ''}\n```")
    else:
        shown.append(f"```text\n{ast.unparse(node)}\n```")
    if each.text:
        shown.append(prose(each.text))
    if isinstance(node, ast.ClassDef):
        shown += members(node)
    return "\n\n".join(shown)


def page() -> str:
    """Return the page for the current docstrings."""
    shown = [HEADER.strip()]
    for module in libraries():
        shown.append(f"## {module}")
        shown.append(prose(ast.get_docstring(tree(file_of(module))) or ""))
        shown += map(entry, public(module))
    return "\n\n".join(shown) + "\n"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description="Write the reference of all public names.")
    parser.add_argument("--check", action="store_true", help="only check; exit with 1 if stale")
    new = page()
    if not parser.parse_args().check:
        PAGE.write_text(new, encoding="utf-8")
    elif new != PAGE.read_text(encoding="utf-8"):
        print(f"{PAGE}: not what the docstrings say; run: build/api_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
