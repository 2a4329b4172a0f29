"""The help of settings: the docstring below each field."""

import ast
import inspect
from collections.abc import Iterator

from deviceplugin._config.settings import Settings


def helps(settings: type[Settings]) -> dict[str, str]:
    """Return the docstring below each field, by key; an empty dict without the source code."""
    found: dict[str, str] = {}
    for owner in reversed(settings.__mro__):
        if not issubclass(owner, Settings):
            continue
        try:
            tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(owner)))
        except (OSError, TypeError, SyntaxError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found.update(_field_texts(node))
    return found


def _field_texts(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            yield field.target.id.replace("_", "-"), " ".join(str(text.value.value).split())
