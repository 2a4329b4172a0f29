"""The picture in `common/docs/architecture.md`, drawn from the imports of the code.

`make generate` draws it, and `build/size.py` has its figures.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = "deviceplugin"
CORE: Final = ROOT / "common/node/src" / PACKAGE
PAGE: Final = ROOT / "common" / "docs" / "architecture.md"
BEGIN: Final = "<!-- drawn by build/architecture.py -->"
END: Final = "<!-- end of the drawing -->"
NO_ROOMS: Final = {"__init__", "__main__"}

Arrows = Mapping[str, frozenset[str]]


def arrows() -> Arrows:
    """Return which rooms, folders or files of its package, each room of the framework imports."""
    graph = grimp.build_graph(PACKAGE, cache_dir=None)
    rooms = {room.removeprefix(f"{PACKAGE}.") for room in graph.find_children(PACKAGE)}
    found: dict[str, set[str]] = {room: set() for room in rooms - NO_ROOMS}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            source, target = _room(importer), _room(imported)
            if source != target and source in found and target in found:
                found[source].add(target)
    return {room: frozenset(targets) for room, targets in found.items()}


def reduced(given: Arrows) -> Arrows:
    """Return ``given`` without the arrows that a longer path implies."""

    def reachable(room: str) -> frozenset[str]:
        return given[room].union(*(reachable(each) for each in given[room]))

    return {
        room: targets - frozenset().union(*(reachable(target) for target in targets))
        for room, targets in given.items()
    }


def floors(given: Arrows) -> list[list[str]]:
    """Return the rooms by floor, the lowest first: each imports only from floors below its own."""
    sorter = TopologicalSorter(given)
    sorter.prepare()
    found = []
    while sorter.is_active():
        found.append(sorted(sorter.get_ready()))
        sorter.done(*found[-1])
    return found


def drawing() -> str:
    """Return the picture and the list of packages, as Markdown."""
    given = arrows()
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"  {_node(room)}" for floor in reversed(floors(given)) for room in floor]
    for room, targets in sorted(reduced(given).items()):
        lines += [f"  {room} --> {target}" for target in sorted(targets)]
    lines += ["```", "", "| Package | What is in it |", "|---|---|"]
    for floor in reversed(floors(given)):
        lines += (f"| `{room}` | {_purpose(room)} |" for room in floor)
    return "\n".join(lines)


def drawn(page: str) -> str:
    """Return ``page`` with the picture for the current code."""
    block = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    return block.sub(lambda _: f"{BEGIN}\n{drawing()}\n{END}", page)


def modules() -> Mapping[str, int]:
    """Return the number of lines of each module, without tests."""
    return {_name(path): len(path.read_text().splitlines()) for path in _sources()}


def functions() -> Mapping[str, int]:
    """Return the number of lines of each function, without tests, by place and name."""
    return {
        f"{_name(path)}:{place}": length
        for path in _sources()
        for place, length in lengths(path.read_text()).items()
    }


def lengths(code: str) -> Mapping[str, int]:
    """Return the number of lines of each function in ``code``, by its first line and its name."""
    return {
        f"{node.lineno}: {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def folders() -> Mapping[str, int]:
    """Return the number of modules that lie side by side in each folder."""
    return Counter(_name(path.parent) for path in _sources() if path.stem not in NO_ROOMS)


def _sources() -> Iterable[Path]:
    beside = [ROOT / name for name in ("tests/support", "e2e/support", "build", "demo")]
    packages = [*ROOT.glob("common/*/src"), ROOT / "operator/src", *ROOT.glob("plugins/*/src")]
    for source in (*sorted(packages), *beside):
        yield from (path for path in source.rglob("*.py") if not path.stem.endswith("_pb2"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _room(module: str) -> str:
    """Return the room that ``module`` is in; an empty string for the package itself."""
    return module.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def _node(room: str) -> str:
    return f'{room}["{room}"]'


def _purpose(room: str) -> str:
    path = CORE / room / "__init__.py"
    code = (path if path.exists() else CORE / f"{room}.py").read_text()
    first = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0].replace("\n", " ")
    return first.replace("``", "`").replace("|", "\\|")
