"""Make a release.

    release.py dist             write everything but the images to dist/release, with checksums
    release.py version [NEW]    print the version, or write NEW wherever the version occurs

The version is that of common/pyproject.toml. All other places must have the same, which the tests
check.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "dist" / "release"
IMAGES: Final = ROOT / "dist" / "images"
PLACES: Final = (
    ("common/pyproject.toml", r'^version = "(.+)"$'),
    ("operator/pyproject.toml", r'^version = "(.+)"$'),
    ("plugins/*/pyproject.toml", r'^version = "(.+)"$'),
    ("deployments/*/kustomization.yaml", r"^    newTag: (.+)$"),
    ("deployments/operator/operator/kustomization.yaml", r"^    newTag: (.+)$"),
    ("build/operator.Dockerfile", r"^ARG VERSION=(.+)$"),
    ("build/operator.Dockerfile", r"-operator:(\d+\.\d+\.\d+)"),
    ("build/Dockerfile", r"^ARG VERSION=(.+)$"),
    ("build/Dockerfile", r"-device-plugin:(\d+\.\d+\.\d+)"),
    ("common/docs/deploying.md", r"(?:-device-plugin:|newTag: )(\d+\.\d+\.\d+)"),
    ("build/README.md", r"-device-plugin[:-](\d+\.\d+\.\d+)"),
    ("demo/examples/*/README.md", r"-device-plugin:(\d+\.\d+\.\d+)"),
)
"""Files, and the pattern of each version in them."""


def version() -> str:
    """Return the version."""
    text = (ROOT / "common/pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def versions() -> Iterator[tuple[str, str]]:
    """Yield each file with a version, and the version."""
    for place, pattern in PLACES:
        for path in sorted(ROOT.glob(place)):
            for found in re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
                yield str(path.relative_to(ROOT)), found


def set_version(new: str) -> None:
    """Write ``new`` to all places."""
    for place, pattern in PLACES:
        for path in sorted(ROOT.glob(place)):
            text = path.read_text(encoding="utf-8")
            path.write_text(
                re.sub(
                    pattern,
                    lambda found: found[0].replace(found[1], new),
                    text,
                    flags=re.MULTILINE,
                ),
                encoding="utf-8",
            )


def build_packages() -> None:
    """Make a wheel and a source distribution of each package."""
    for project in (ROOT / "common", ROOT / "operator", *sorted((ROOT / "plugins").iterdir())):
        if (project / "pyproject.toml").is_file():
            words = [sys.executable, "-m", "hatchling", "build", "-d", str(TARGET)]
            subprocess.run(words, cwd=project, check=True, capture_output=True)


def render_deployments() -> None:
    """Write a file for `kubectl apply -f` for each plugin."""
    kustomize = ["kustomize", "build"] if shutil.which("kustomize") else ["kubectl", "kustomize"]
    for path in sorted(ROOT.glob("deployments/*/kustomization.yaml")):
        folder = path.parent
        if folder.name == "base":
            continue
        words = [*kustomize, str(folder)]
        text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        (TARGET / f"install-{folder.name}.yaml").write_text(text, encoding="utf-8")


def add_up() -> None:
    """Write the checksums, in the form of sha256sum."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(TARGET.iterdir())
    ]
    (TARGET / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def dist() -> None:
    """Make the release."""
    if differing := {place for place, found in versions() if found != version()}:
        raise SystemExit(f"release.py: not of version {version()}: {', '.join(sorted(differing))}")
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    build_packages()
    render_deployments()
    for path in sorted(IMAGES.glob(f"*-{version()}.*")):
        shutil.copy2(path, TARGET)
    add_up()
    for path in sorted(TARGET.iterdir()):
        print(path.name)


def main(argv: Sequence[str]) -> None:
    """Run the command."""
    match argv:
        case ["dist"]:
            dist()
        case ["version"]:
            print(version())
        case ["version", new]:
            set_version(new)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
