"""Link alerts to their runbooks, where the repository is published.

runbooks.py [HOME]
    print the alerts of the monitoring component with links, as a patch for your kustomization.
    HOME is the address of the repository, which has this version's tag; without it links lead
    to where the checkout comes from, at its commit, so that they work before a release
"""

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

import versions

ROOT: Final = Path(__file__).parents[1]
RULES: Final = ROOT / "deployments/components/monitoring/rules.yaml"
PAGE: Final = "common/docs/runbooks.md"
_WEB: Final = re.compile(r"(https?://)(?:[^/@]*@)?([^/@]+/.+?)(?:\.git)?/?")
_SSH: Final = re.compile(r"(?:ssh://)?[^/@:]+@([\w.-]+)(?::\d+/|[:/])/?(.+?)(?:\.git)?/?")


def published(home: str, tag: str, checkout: Path = ROOT) -> str:
    """Return the address below which the files of this version are; empty if nobody knows."""
    if home:
        return f"{home.rstrip('/')}/blob/{tag}"
    origin = address(_git(checkout, "remote", "get-url", "origin"))
    for commit in ("HEAD", "origin/HEAD"):
        if origin and _git(checkout, "branch", "--remotes", "--contains", commit):
            return f"{origin}/blob/{_git(checkout, 'rev-parse', commit)}"
    return ""


def address(remote: str) -> str:
    """Return where a browser finds a remote of git, without credentials; empty if nowhere."""
    if web := _WEB.fullmatch(remote):
        return web[1] + web[2]
    ssh = _SSH.fullmatch(remote)
    return f"https://{ssh[1]}/{ssh[2]}" if ssh else ""


def _git(checkout: Path, *words: str) -> str:
    """Return what git prints; nothing if it fails, or is not there."""
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def link(found: Any, base: str) -> Any:
    """Return a document in which alerts have their runbooks' addresses, if ``base`` is known."""
    if isinstance(found, list):
        return [link(one, base) for one in found]
    if not isinstance(found, dict):
        return found
    made = {key: link(value, base) for key, value in found.items()}
    if base and "alert" in made:
        made["annotations"]["runbook_url"] = f"{base}/{PAGE}#{made['alert'].lower()}"
    return made


def main(argv: Sequence[str]) -> None:
    """See the module."""
    home = argv[0] if argv else ""
    if len(argv) > 1 or not home.startswith("http" if argv else ""):
        raise SystemExit(__doc__)
    if not (base := published(home, f"v{versions.current()}")):
        raise SystemExit(
            "runbooks.py: this checkout has no remote 'origin' on the web that has its commit: "
            "give the address of the repository"
        )
    rules = link(yaml.safe_load(RULES.read_text(encoding="utf-8")), base)
    sys.stdout.write(yaml.safe_dump(rules, sort_keys=False, width=1000))


if __name__ == "__main__":
    main(sys.argv[1:])
