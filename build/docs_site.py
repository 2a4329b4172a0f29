"""Make the documentation site, of the pages as they are in the repository.

    docs_site.py [FOLDER] [--home URL] [--site URL]

        FOLDER    of the site, which may have other versions already (default: dist/site)
        --home    address of the repository: links to files that are no pages lead there
                  (default: they are copied)
        --site    address of the site: with it, the selector leads to the same page of a version

mkdocs makes it, with the versions and hashes of docs_site.lock, from a copy of the pages. A link
that leads nowhere is an error.

Each version has a folder of its own. versions.json lists them, the newest first, for the selector
on each page, and index.html leads to the newest. The files need a web server: try
`python3 -m http.server --directory dist/site`.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from packaging.version import Version

from versions import current

ROOT: Final = Path(__file__).parents[1]
LOCK: Final = Path(__file__).with_name("docs_site.lock")
PAGES: Final = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CRITIQUES.md", "STYLE.md", "SECURITY.md"),
    *("CODE_OF_CONDUCT.md", "common/*/README.md", "common/docs/**/*.md"),
    *("plugins/*/README.md", "plugins/*/docs/**/*.md", "plugins/*/*/README.md", "build/README.md"),
    *("operator/**/*.md", "deployments/**/*.md", "demo/**/*.md", "e2e/**/*.md", "tests/**/*.md"),
)
MAP: Final = ROOT / "common/node/README.md"
LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
SLUGS: Final = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
"""Anchors as they are on the pages of a repository."""
REFERENCE: Final = "common/docs/api.md"
"""The page of all public names, which mkdocstrings makes of the docstrings."""
LIBRARIES: Final = (
    "deviceplugin",
    "deviceplugin.checks",
    "deviceplugin_testing.conformance",
    "deviceplugin_testing.fixture",
    "deviceplugin_testing.simulator",
)
"""The packages whose ``__all__`` is public; so is every module of the kit."""
VERSIONS: Final = "versions.json"
"""Where the theme looks for versions, in the folder above its own."""
LEADS: Final = """<!DOCTYPE html>
<meta charset="utf-8"><title>deviceplugin</title>
<meta http-equiv="refresh" content="0; url={0}/"><a href="{0}/">deviceplugin {0}</a>
"""
STYLE: Final = (
    "names.css",
    ".md-typeset td:first-child code { word-break: normal; overflow-wrap: normal; }\n",
)
"""Names in the first column of a table are not broken; the table can be moved sideways."""
FENCE: Final = re.compile(r"^(```+).*?^\1$", re.MULTILINE | re.DOTALL)


def pages() -> list[Path]:
    """Return the pages, relative to the repository."""
    found = {path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path for path in found if not any(part[0] == "." for part in path.parts))


def write(folder: Path, home: str = "", site: str = "") -> None:
    """Write what mkdocs reads: its configuration, and the pages with what they link to."""
    known = set(pages())
    for page in known:
        text = (ROOT / page).read_text(encoding="utf-8")
        place = folder / "docs" / page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(relink(text, page, known, folder / "docs", home), encoding="utf-8")
    (folder / "docs" / REFERENCE).write_text(reference(), encoding="utf-8")
    configuration = yaml.safe_dump(settings(home, site), sort_keys=False).replace("SLUGS", SLUGS)
    (folder / "mkdocs.yml").write_text(configuration, encoding="utf-8")
    (folder / "docs" / STYLE[0]).write_text(STYLE[1], encoding="utf-8")


def reference() -> str:
    """Return the page of all public names, as directives for mkdocstrings."""
    kit = ROOT / "common/node/src/deviceplugin/kit"
    parts = sorted({path.stem for path in kit.iterdir() if path.name[0] not in "_."})
    first, *others = LIBRARIES
    modules = [first, *(f"{first}.kit.{part}" for part in parts), *others]
    return "# API reference\n\n" + "".join(f"::: {module}\n\n" for module in modules)


def relink(text: str, page: Path, known: set[Path], docs: Path, home: str) -> str:
    """Return a page whose links lead to pages, to ``home``, or to files that are copied."""

    def changed(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        path = Path(os.path.normpath(page.parent / target))
        if ":" in target or path in known:
            return found[0]
        if path / "README.md" in known:
            inside = os.path.relpath(path / "README.md", page.parent)
            return f"]({inside}{anchor})"
        image = path.suffix in {".png", ".svg"}
        if home and not image:
            return f"]({home}/blob/v{current()}/{path}{anchor})"
        if (ROOT / path).is_file():
            (docs / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, docs / path)
            return f"]({target})"
        return "](#)" if (ROOT / path).is_dir() else found[0]  # mkdocs says what leads nowhere

    # What looks like a link in a block is none.
    blocks = {found.start(): found.end() for found in FENCE.finditer(text)}
    parts, here = [], 0
    for start, end in blocks.items():
        parts += [LINK.sub(changed, text[here:start]), text[start:end]]
        here = end
    return "".join([*parts, LINK.sub(changed, text[here:])])


def settings(home: str, site: str) -> dict[str, Any]:
    """Return the configuration of mkdocs."""
    found: dict[str, Any] = {
        "site_name": "deviceplugin",
        "docs_dir": "docs",
        "theme": {
            "name": "material",
            "font": False,  # nothing is fetched from elsewhere
            "features": ["navigation.indexes", "navigation.top", "search.suggest", "toc.follow"],
            "palette": [
                {"media": "(prefers-color-scheme: light)", "scheme": "default"},
                {"media": "(prefers-color-scheme: dark)", "scheme": "slate"},
            ],
        },
        "plugins": ["search", {"mkdocstrings": {"handlers": {"python": docstrings()}}}],
        "use_directory_urls": False,
        "extra_css": [STYLE[0]],
        "extra": {"version": {"provider": "mike"}},  # the form of versions.json
        "exclude_docs": "!.*",  # workflows are linked to
        "validation": {
            "nav": {"omitted_files": "ignore"},  # pages of tests and examples are found by links
            "links": {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"},
        },
        "markdown_extensions": [
            "tables",
            {"toc": {"permalink": True, "slugify": "SLUGS"}},
            "pymdownx.superfences",
            "pymdownx.highlight",
        ],
        "nav": [*navigation()],
    }
    if home:
        found |= {"repo_url": home, "edit_uri": ""}
    if site:
        found["site_url"] = f"{site}/{current()}/"
    return found


def docstrings() -> dict[str, Any]:
    """Return how mkdocstrings reads the sources. It imports nothing."""
    options = {
        "docstring_options": {"warnings": False},
        "show_root_heading": True,
        "show_root_full_path": True,
        "show_source": False,
        "show_if_no_docstring": False,
        "heading_level": 2,
        "members_order": "source",
    }
    return {"paths": sorted(map(str, ROOT.glob("common/*/src"))), "options": options}


def navigation() -> Iterator[dict[str, Any]]:
    """Yield what the menu has: the map of pages in common/node/README.md, and each plugin."""
    yield {"Home": "README.md"}
    listed: set[Path] = set()
    text = MAP.read_text(encoding="utf-8").partition("## The documentation")[2]
    for title, rows in re.findall(r"^([A-Z][^\n|]+):\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        links = re.findall(r"\[([^]]+)\]\(([^)#]+\.md)\)", rows)
        pages = [
            (name, os.path.normpath(MAP.parent.relative_to(ROOT) / path)) for name, path in links
        ]
        listed.update(ROOT / path for _, path in pages)
        yield {title: [{name: path} for name, path in dict.fromkeys(pages)]}
    yield {"API reference": REFERENCE}
    own = sorted({*ROOT.glob("plugins/*/README.md")} - listed)
    yield {"Plugins": [{path.parent.name: str(path.relative_to(ROOT))} for path in own]}
    yield {"Operator": [{"operator": "operator/README.md"}]}
    names = ("CONTRIBUTING", "CRITIQUES", "CHANGELOG", "SECURITY")
    yield {"Project": [{name.capitalize(): f"{name}.md"} for name in names]}


def list_versions(folder: Path) -> None:
    """Write which versions a site has, the newest first, and what leads to the newest."""
    found = [path.parent.name for path in folder.glob("*/sitemap.xml")]
    listed = sorted(found, key=Version, reverse=True)
    entries = [{"version": one, "title": one, "aliases": []} for one in listed]
    (folder / VERSIONS).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(LEADS.format(listed[0]), encoding="utf-8")


def main(argv: Sequence[str]) -> int:
    """See the module; return 0 if the site was made."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist" / "site")
    parser.add_argument("--home", default="")
    parser.add_argument("--site", default="")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), options.home.rstrip("/"), options.site.rstrip("/"))
        uv = Path(sys.executable).with_name("uv")
        tool: list[str | Path] = [uv, "run", "--no-project", "--quiet", "--with-requirements", LOCK]
        words = [*tool, "mkdocs", "build", "--strict", "--site-dir"]
        done = subprocess.run(
            [*words, options.folder.resolve() / current()],
            cwd=scratch,
            env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
            check=False,
        )
    if not done.returncode:
        list_versions(options.folder)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
