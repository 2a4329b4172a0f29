"""Every log event of the tree has a row in ``common/docs/log-events.md``, and every row an event.

The row of an event that a plugin logs may stand on the plugin's own page in place of that one.
Events are an interface: people search logs for them and alert on them. They are collected from the
source, so that none is added, renamed or removed without the page. Debug lines are not promised.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "common/docs/log-events.md"
LEVELS: Final = {"info": "info", "warning": "warning", "error": "error", "exception": "error"}
_OTHER_LEVELS: Final = {"logging.ERROR": "error", "logging.INFO": "info"}
_ROW = re.compile(
    r"^\| `(?P<event>[^`]+)` \| (?P<level>(?:info|warning|error|, )+) \|(?P<fields>[^|]*)\|",
    re.MULTILINE,
)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Logged(NamedTuple):
    event: str
    level: str
    fields: frozenset[str]


_LOGS = re.compile(r"\blog\.|\.say|events\.add\(")


def sources() -> list[Path]:
    """Return the modules that may log anything."""
    folders = ("common/node/src", "operator/src", "plugins/*/src")
    found = [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    return [path for path in found if path.name != "log.py" and _LOGS.search(path.read_text())]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def walk(node: ast.AST) -> list[ast.AST]:
    return [*ast.walk(node)]


@cache
def functions(node: ast.AST) -> list[tuple[_Function, ast.Call]]:
    """Return each call with the innermost function around it."""
    found = []
    for outer in walk(node):
        if isinstance(outer, _Function):
            waiting: list[ast.AST] = list(ast.iter_child_nodes(outer))
            for inner in waiting:
                if isinstance(inner, _Function):
                    continue
                waiting.extend(ast.iter_child_nodes(inner))
                if isinstance(inner, ast.Call):
                    found.append((outer, inner))
    return found


def assigned(name: str, where: ast.AST) -> Iterator[ast.expr]:
    """Yield what ``name`` is assigned, as a variable or as an attribute."""
    for node in walk(where):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        if name in {getattr(each, "id", getattr(each, "attr", None)) for each in targets}:
            yield value


def texts(value: ast.expr, function: _Function, path: Path) -> set[str]:
    """Return the constants that ``value`` may be: an event is one, or one of a few."""
    if isinstance(value, ast.Constant):
        return {str(value.value)}
    if isinstance(value, ast.IfExp):
        return texts(value.body, function, path) | texts(value.orelse, function, path)
    assert isinstance(value, ast.Name), f"{path}:{value.lineno}: the event is not a constant text"
    if here := list(assigned(value.id, function)):
        return {text for each in here for text in texts(each, function, path)}
    position = [argument.arg for argument in function.args.args].index(value.id) - 1
    calls = (
        call
        for other in path.parent.glob("*.py")
        for _, call in functions(tree(other))
        if isinstance(call.func, ast.Attribute) and call.func.attr == function.name
    )
    given = (call.args[position] for call in calls if len(call.args) > position)
    return {str(each.value) for each in given if isinstance(each, ast.Constant)}


def keys(value: ast.expr, where: _Function, module: ast.Module) -> Iterator[str]:
    """Yield the fields that are in ``value``: a dict, a name of one, or a call that makes one."""
    for node in ast.walk(value):
        if isinstance(node, ast.Dict):
            yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            for made in walk(module):
                if isinstance(made, _Function) and made.name == node.func.id:
                    dicts = (each for each in walk(made) if isinstance(each, ast.Dict))
                    yield from (key for each in dicts for key in keys(each, made, module))
        elif isinstance(node, ast.Name):
            for each in assigned(node.id, where):
                yield from keys(each, where, module) if isinstance(each, ast.Dict) else ()
            yield from added(node.id, where)


def added(name: str, where: ast.AST) -> Iterator[str]:
    """Yield the keys that are set in the dict ``name`` one by one."""
    for node in walk(where):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == name
            and isinstance(node.slice, ast.Constant)
        ):
            yield str(node.slice.value)


def levels(receiver: ast.expr, function: _Function, module: ast.Module) -> set[str]:
    """Return the levels at which ``receiver``, Problems of one or several kinds, logs."""
    names = {getattr(node, "attr", getattr(node, "id", "")) for node in ast.walk(receiver)}
    made = [value for name in names for value in assigned(name, module)]
    found = {
        next(
            (level for word, level in _OTHER_LEVELS.items() if word in ast.unparse(value)),
            "warning",
        )
        for value in made
        if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[-1] == "Problems"
    }
    for value in (v for name in names for v in assigned(name, function)):
        if isinstance(value, ast.IfExp):
            found |= levels(value, function, module)
    return found or {"warning"}


def logged_by(path: Path) -> Iterator[Logged]:
    module = tree(path)
    for function, call in functions(module):
        if not isinstance(call.func, ast.Attribute):
            continue
        receiver, verb = call.func.value, call.func.attr
        given = {word.arg: word.value for word in call.keywords}
        if verb == "say_all":
            event, spread, at = call.args[0], [], levels(receiver, function, module)
            named = {"problem", *(str(name) for name in given)}
        elif verb == "say" and (given or len(call.args) > 1):
            event = call.args[-1]
            spread = [value for name, value in given.items() if name is None]
            named = {str(name) for name in given if name not in {None, "cause"}}
            at = levels(receiver, function, module)
        elif isinstance(receiver, ast.Name) and receiver.id == "log" and verb in LEVELS:
            event, at, named = call.args[0], {LEVELS[verb]}, set[str]()
            spread = [given["extra"]] if "extra" in given else []
        else:
            continue
        fields = named.union(*(keys(value, function, module) for value in spread))
        for text in texts(event, function, path):
            yield from (Logged(text, level, frozenset(fields)) for level in at)


def joined(found: Iterable[Logged]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the levels and the fields of each event, wherever it is logged."""
    events: dict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for event, level, fields in found:
        events[event][0].add(level)
        events[event][1].update(fields)
    return {event: (sorted(at), sorted(names)) for event, (at, names) in events.items()}


def of_the_page(text: str) -> dict[str, tuple[list[str], list[str]]]:
    return {
        row["event"]: (
            sorted(row["level"].split(", ")),
            sorted(re.findall("`(.*?)`", row["fields"])),
        )
        for row in _ROW.finditer(text)
    }


def pages() -> str:
    """Return the page, and those of the plugins and the operator."""
    places = ("operator/README.md", "plugins/*/README.md", "plugins/*/docs/*.md")
    own = [path for place in places for path in ROOT.glob(place)]
    return "\n".join(path.read_text() for path in (PAGE, *sorted(own)))


def test_the_page_has_the_level_and_the_fields_of_every_event_and_no_other() -> None:
    logged = joined(each for path in sources() for each in logged_by(path))
    assert dict(sorted(of_the_page(pages()).items())) == dict(sorted(logged.items()))


def test_no_event_has_two_rows() -> None:
    events = [row["event"] for row in _ROW.finditer(pages())]
    assert sorted(set(events)) == sorted(events)


def test_every_event_of_the_status_page_is_one_of_the_log_or_named_as_its_own() -> None:
    text = PAGE.read_text()
    own = set(re.findall("`(.*?)`", text.partition("## On the status page only\n")[2]))
    shown = {
        str(call.args[0].value)
        for path in sources()
        for _, call in functions(tree(path))
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "add"
        and ast.unparse(call.func.value).endswith("events")
        and isinstance(call.args[0], ast.Constant)
    }
    assert own == shown - of_the_page(text).keys()


@pytest.mark.parametrize(
    ("statement", "event", "expected"),
    [
        ('log.info("a", extra={"b": 1})', "a", (["info"], ["b"])),
        ('log.exception("a")', "a", (["error"], [])),
        ('self.once.say("s", "a", b=1, cause=None)', "a", (["warning"], ["b"])),
        ('self.loud.say("s", "a", b=1)', "a", (["error"], ["b"])),
        ('self.loud.say_all("a", [b], c=1)', "a", (["error"], ["c", "problem"])),
        ('event = "a" if b else "c"; log.warning(event)', "c", (["warning"], [])),
        ('f = {"b": 1}; f["c"] = 2; log.info("a", extra=f)', "a", (["info"], ["b", "c"])),
    ],
)
def test_an_event_is_found_in_every_way_of_logging_it(
    tmp_path: Path, statement: str, event: str, expected: tuple[list[str], list[str]]
) -> None:
    source = (
        "class C:\n    def __init__(self):\n        self.once = Problems(log)\n"
        "        self.loud = Problems(log, logging.ERROR)\n"
        f"    def act(self, b):\n        {statement}\n"
    )
    (tmp_path / "m.py").write_text(source)
    assert expected == joined(logged_by(tmp_path / "m.py"))[event]


def test_an_event_that_is_put_together_at_run_time_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text('def act(a):\n    log.info(f"failed: {a}")\n')
    with pytest.raises(AssertionError, match=r"m\.py:2: the event is not a constant text"):
        list(logged_by(tmp_path / "m.py"))
