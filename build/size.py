"""Print how large the repository is, and hold it to budgets.

    .venv/bin/python build/size.py            print the figures
    .venv/bin/python build/size.py --check    print those above their budget; 1 if there are any

Lines are those of the files that git knows: code, docstrings and blank lines. Whoever needs more of
something raises its budget below, in a commit that says why.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import architecture

ROOT: Final = Path(__file__).parents[1]
GENERATED: Final = ("*_pb2.py", "*_pb2.pyi", "schema.json", "operator/crd/deviceplugins.yaml")
SOURCES: Final = ("common/", "plugins/", "operator/")
KIB: Final = 1024
BUDGETS: Final = {
    "lines of source": 98_700,
    "of deviceplugin": 39_100,
    "of deviceplugin-testing": 20_300,
    "of deviceplugin-cli": 8_900,
    "of the plugins": 26_000,
    "of the operator": 4_620,
    "lines of build and demo": 6_050,
    "lines of tests, with e2e": 128_200,
    "lines of generated files": 5_750,
    "pages": 104,
    "words on pages": 104_500,
    "words on the longest page": 2_850,
    "KiB of the wheel that a node installs": 1_670,
    "arrows between rooms": 113,
}
"""The most that each figure may be."""


def tracked() -> list[Path]:
    """Return the files that git knows, relative to the repository."""
    words = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    names = [Path(name) for name in listed.split("\0") if name]
    return [name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def figures(files: Sequence[Path]) -> Mapping[str, int]:
    """Return each figure, by its name in ``BUDGETS``."""
    generated = [one for one in files if any(one.match(pattern) for pattern in GENERATED)]
    python = [one for one in files if one.suffix == ".py" and one not in generated]
    sources = [one for one in python if "/src/" in str(one) and str(one).startswith(SOURCES)]
    others = [one for one in python if str(one).startswith(("build/", "demo/"))]

    def below(*folders: str) -> int:
        return lines(one for one in sources if str(one).startswith(folders))

    words = {one: words_of(content(one)) for one in files if one.suffix == ".md"}
    return {
        "lines of source": lines(sources),
        "of deviceplugin": below("common/node/"),
        "of deviceplugin-testing": below("common/testing/"),
        "of deviceplugin-cli": below("common/cli/"),
        "of the plugins": below("plugins/"),
        "of the operator": below("operator/"),
        "lines of build and demo": lines(others),
        "lines of tests, with e2e": lines(one for one in python if one not in {*sources, *others}),
        "lines of generated files": lines(generated),
        "pages": len(words),
        "words on pages": sum(words.values()),
        "words on the longest page": max(words.values(), default=0),
        "KiB of the wheel that a node installs": wheel_size(ROOT / "common/node") // KIB,
        "arrows between rooms": sum(map(len, architecture.arrows().values())),
    }


def words_of(page: str) -> int:
    """Return how many words a page has; the bars of tables are none."""
    return sum(1 for one in page.split() if any(map(str.isalnum, one)))


def lines(files: Iterable[Path]) -> int:
    """Return how many lines files have together."""
    return sum(len(content(one).splitlines()) for one in files)


def content(file: Path) -> str:
    """Return what is in a file of the repository."""
    return (ROOT / file).read_text(encoding="utf-8")


def wheel_size(project: Path) -> int:
    """Return how many bytes the wheel of ``project`` has, unpacked."""
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(words, cwd=project, check=True, capture_output=True)
        (path,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(path) as wheel:
            return sum(one.file_size for one in wheel.infolist())


def main(words: Sequence[str], found: Callable[[], Mapping[str, int]] | None = None) -> int:
    """Print the figures; with ``--check`` only those above their budget, and return 1."""
    measured = found() if found else figures(tracked())
    above = [name for name, size in measured.items() if size > BUDGETS[name]]
    for name in above if "--check" in words else measured:
        print(f"{name:38} {measured[name]:8,}   at most {BUDGETS[name]:8,}")
    if "--check" in words and above:
        print("build/size.py: make it smaller, or raise the budget there and say why")
    return 1 if "--check" in words and above else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
