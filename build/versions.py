"""The version, and all places where it stands, which the tests compare."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLACES: Final = (
    *(
        (f"{place}/pyproject.toml", pattern)
        for place in ("common/*", "operator", "plugins/*")
        for pattern in (r'^version = "(.+)"$', r'"deviceplugin[^"]*~=([^"]+)"')
    ),
    ("deployments/*/kustomization.yaml", r"^    newTag: (.+)$"),
    ("deployments/*/kustomization.yaml", r"^      app.kubernetes.io/version: (.+)$"),
    ("deployments/operator/operator/kustomization.yaml", r"kubernetes.io/version: (.+)$"),
    ("deployments/operator/operator/kustomization.yaml", r"^    newTag: (.+)$"),
    ("deployments/**/chart/Chart.yaml", r'^(?:version|appVersion): "?([^"\n]+)'),
    ("build/operator.Dockerfile", r"^ARG VERSION=(.+)$"),
    ("build/operator.Dockerfile", r"-operator:(\d+\.\d+\.\d+)"),
    ("build/Dockerfile", r"^ARG VERSION=(.+)$"),
    ("build/Dockerfile", r"-device-plugin:(\d+\.\d+\.\d+)"),
    ("common/docs/deploying.md", r"(?:-device-plugin:|newTag: |-plugins-)(\d+\.\d+\.\d+)"),
    ("common/docs/overlays.md", r"(?:ref=v|tag: v|Revision: v?|-plugin:)(\d+\.\d+\.\d+)"),
    ("deployments/chart/README.md", r"device-plugins-(\d+\.\d+\.\d+)"),
    ("build/README.md", r"(?:-device-plugin|-operator)[:-](\d+\.\d+\.\d+)"),
    ("demo/examples/*/README.md", r"-device-plugin:(\d+\.\d+\.\d+)"),
)
"""Files, and the pattern of each version in them."""


def of(project: Path) -> str:
    """Return the version of a package."""
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    found: str = tomllib.loads(text)["project"]["version"]
    return found


def current(root: Path = ROOT) -> str:
    """Return the version."""
    return of(root / "common/node")


def everywhere(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield each file with a version, and the version."""
    for place, pattern in PLACES:
        for path in sorted(root.glob(place)):
            for found in re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
                yield str(path.relative_to(root)), found


def write(new: str, root: Path = ROOT) -> None:
    """Write ``new`` to all places."""
    for place, pattern in PLACES:
        for path in sorted(root.glob(place)):
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
