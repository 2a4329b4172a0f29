"""Rewrite the tables and the picture that are made of measured figures.

    figures.py                                       rewrites the pages
    figures.py take RESULT.json FILE.json NOTE TITLE=NAME...
                                                     first takes sections of a result

RESULT.json is what ``deviceplugin bench --json`` wrote, FILE.json one of ``common/docs/figures``.
The section TITLE is kept as NAME; NOTE says on which machine and how it was measured. Nobody copies
a figure by hand, and a test compares the pages with the files.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.tools.bench import _node, _picture, _summary

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "common/docs"
FIGURES: Final = DOCS / "figures"
COMPARED: Final = FIGURES / "compared.json"
NODE: Final = FIGURES / "node.json"
CRITIQUES: Final = ROOT / "CRITIQUES.md"
PAGE: Final = DOCS / "performance.md"
PICTURE: Final = DOCS / "several-plugins.svg"
PEER: Final = 15.0
"""MiB of a typical peer in Go: those of ``compared.json`` have 12 to 20."""


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each file that is made of figures, with what should be in it."""
    compared, node = _summary.load(COMPARED), _summary.load(NODE)
    page = CRITIQUES.read_text(encoding="utf-8")
    yield CRITIQUES, _summary.rewritten(page, "compared", _summary.table(compared))
    page = PAGE.read_text(encoding="utf-8")
    yield PAGE, _summary.rewritten(page, "node", node_table(node))
    yield PICTURE, node_picture(node)


def node_table(node: Mapping[str, Any]) -> str:
    """Return the table of what 1 to 5 plugins cost a node."""
    apart, together = figures_of(node, _node.APART), figures_of(node, _node.TOGETHER)
    plugins = list(_node.PLUGINS)
    lines = [
        "| Plugins | Apart: RSS | PSS | threads | In one process: RSS | PSS | threads |",
        "|" + "---|" * 7,
    ]
    for count, name in enumerate(plugins, 1):
        cells = [
            f"{each[f'{what} of {count} plugin' + 's' * (count > 1)]:.0f}{unit}"
            for each in (apart, together)
            for what, unit in (("RSS", " MiB"), ("PSS", " MiB"), ("threads", ""))
        ]
        lines.append(f"| {'and ' * (count > 1)}{name} | " + " | ".join(cells) + " |")
    (note,) = {section["note"] for section in node["sections"]}
    return "\n".join([*lines, "", note])


def node_picture(node: Mapping[str, Any]) -> str:
    """Return the picture of the same."""
    counts = range(1, len(_node.PLUGINS) + 1)

    def line(name: str, title: str, what: str) -> _picture.Line:
        found = figures_of(node, title)
        return _picture.Line(name, [found[f"{what} of {n} plugin{'s' * (n > 1)}"] for n in counts])

    lines = [
        line("apart, resident", _node.APART, "RSS"),
        line("apart, proportional", _node.APART, "PSS"),
        _picture.Line("peers in Go, 15 each", [PEER * n for n in counts]),
        line("in one process, resident", _node.TOGETHER, "RSS"),
        line("in one process, proportional", _node.TOGETHER, "PSS"),
    ]
    title = "Memory of the plugins of a node, MiB"
    return _picture.chart(title, "plugins on the node", [str(n) for n in counts], lines)


def figures_of(summary: Mapping[str, Any], title: str) -> Mapping[str, float]:
    """Return the medians of the section ``title``, by name."""
    (section,) = [each for each in summary["sections"] if each["title"] == title]
    return {each["name"]: each["median"] for each in section["figures"]}


def take(result: Path, file: Path, note: str, names: Sequence[str]) -> None:
    """Write sections of ``result`` to ``file``."""
    titles = dict(name.split("=", 1) for name in names)
    kept = _summary.load(file) if file.exists() else {"format": 1, "sections": []}
    summary = _summary.merged(kept, _summary.load(result), titles, note)
    file.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(argv: Sequence[str]) -> None:
    """Take figures if asked to, and rewrite the pages."""
    if argv:
        _, result, file, note, *names = argv
        take(Path(result), Path(file), note, names)
    for path, text in pages():
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
