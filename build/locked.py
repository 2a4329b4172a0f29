"""Print parts of ``requirements.lock``, which is read from standard input.

    locked.py pins                  every package with its version, without hashes
    locked.py only NAME...          these packages, with their hashes
    locked.py needed REPORT         the packages in a report of ``pip install --report`` that did
                                    not come from a local file, with their hashes

It exits with 1 if a package is not in the lock.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==\S+.*(?:\n[ \t].*)*", re.MULTILINE)


def entries(lock: str) -> dict[str, str]:
    """Return the entry of each package, by its normalised name."""
    return {normalise(match[1]): match[0] for match in ENTRY.finditer(lock)}


def normalise(name: str) -> str:
    """Return the normalised spelling of ``name``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pin(entry: str) -> str:
    """Return ``entry`` without its hashes."""
    return entry.partition(" \\\n")[0]


def needed(report: Path) -> Iterable[str]:
    """Yield the packages that pip would not install from a local file."""
    for item in json.loads(report.read_text(encoding="utf-8"))["install"]:
        if not item["is_direct"]:
            yield item["metadata"]["name"]


def main(argv: Sequence[str], lock: str) -> str:
    """Return the output of the command."""
    command, *rest = argv
    known = entries(lock)
    if command == "pins":
        return "".join(f"{pin(entry)}\n" for entry in known.values())
    names = rest if command == "only" else needed(Path(rest[0]))
    wanted = [normalise(name) for name in names]
    if missing := [name for name in wanted if name not in known]:
        raise SystemExit(f"locked.py: not in the lock: {', '.join(missing)}")
    return "".join(f"{known[name]}\n" for name in wanted)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:], sys.stdin.read()))
