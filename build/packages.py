"""The packages of a release: what the template is not, with versions, licence and addresses."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import operator_manifests

ROOT: Final = Path(__file__).parents[1]


def packages() -> list[str]:
    """Return the folders of the packages that are published. The template is there to copy."""
    patterns = ("common/*", "operator", "plugins/*")
    found = [path.parent for one in patterns for path in sorted(ROOT.glob(f"{one}/pyproject.toml"))]
    names = [str(path.relative_to(ROOT)) for path in found]
    return [folder for folder in names if folder != "plugins/template"]


def build(target: Path, version: str, home: str) -> None:
    """Make wheels and source distributions in ``target``, with links below ``home`` if given."""
    operator_manifests.write()
    with tempfile.TemporaryDirectory() as scratch:
        for folder in packages():  # all at first: plugins/node finds the others beside it
            project = Path(scratch, folder)
            shutil.copytree(ROOT / folder, project, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy2(ROOT / "LICENSE", project)
        for folder in packages():
            project = Path(scratch, folder)
            if home:
                give_home(project, folder, home, version)
            words = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
            subprocess.run(words, cwd=project, check=True, capture_output=True)


def give_home(project: Path, folder: str, home: str, version: str) -> None:
    """Write the repository's address into a copy of the package ``folder``."""
    at_version = f"{home}/blob/v{version}"
    urls = {
        "Repository": home,
        "Documentation": f"{at_version}/{folder}/README.md",
        "Changelog": f"{at_version}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    table = "".join(f'{name} = "{url}"\n' for name, url in urls.items())
    with (project / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[project.urls]\n{table}")
    relink(project / "README.md", folder, at_version)


def relink(page: Path, folder: str, base: str) -> None:
    """Make the links of a page of ``folder`` absolute."""
    text = page.read_text(encoding="utf-8")
    page.write_text(absolute_links(text, folder, base), encoding="utf-8")


def absolute_links(text: str, folder: str, base: str) -> str:
    """Return a page of ``folder`` with each link to a file of the repository below ``base``."""

    def absolute(found: re.Match[str]) -> str:
        path, hash_sign, anchor = found[1].partition("#")
        if not path or ":" in path:  # within the page, or absolute already
            return found[0]
        return f"]({base}/{os.path.normpath(f'{folder}/{path}')}{hash_sign}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", absolute, text)
