"""Push the images and the charts of a release to a registry, as they were built.

    push.py --names [FOLDER]
    push.py REGISTRY [FOLDER] [--only NAME] [--plain-http]

        REGISTRY      as for `release.py dist --registry`: registry.example.com/hw
        FOLDER        of the release (default: dist/release)
        --only        only the image of this name, or the chart
        --plain-http  the registry has no TLS
        --names       print what there is to push, as JSON, and push nothing

It needs skopeo for images and helm for charts, which use the credentials of docker, and nothing
that is not Python's own. It prints
NAME@DIGEST of each, as the registry has it, and fails if an image has another digest there than in
the release, by which manifests and charts name it.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from archive import Archive

RELEASE: Final = Path(__file__).parents[1] / "dist" / "release"
CHARTS: Final = "charts"
"""Where the charts are, below the registry: an image can be called like a chart."""


def contents(folder: Path) -> dict[str, Path]:
    """Return what a release has to push, by name."""
    found = (*sorted(folder.glob("*.tar")), *sorted(folder.glob("*.tgz")))
    return {path.stem.rpartition("-")[0]: path for path in found}


def push_image(path: Path, registry: str, *, plain: bool) -> str:
    """Push an image, and return its name and digest, which is that of the release."""
    name, _, version = path.stem.rpartition("-")
    with tempfile.NamedTemporaryFile() as file:
        target = [f"oci-archive:{path}", f"docker://{registry}/{name}:{version}"]
        options = ["--all", "--preserve-digests", "--quiet", f"--digestfile={file.name}"]
        options += ["--dest-tls-verify=false"] if plain else []
        run("skopeo", "copy", *options, *target)
        digest = Path(file.name).read_text(encoding="utf-8").strip()
    if digest != (expected := Archive(path).digest):
        raise ValueError(f"{name}: the registry has {digest}, the release {expected}")
    return f"{registry}/{name}@{digest}"


def push_chart(path: Path, registry: str, *, plain: bool) -> str:
    """Push a chart, and return its name and digest."""
    options = ["--plain-http"] if plain else []
    said = run("helm", "push", str(path), f"oci://{registry}/{CHARTS}", *options)
    digest = re.search(r"sha256:[0-9a-f]{64}", said)
    if digest is None:
        raise ValueError(f"helm did not say the digest of {path.name}: {said}")
    return f"{registry}/{CHARTS}/{path.stem.rpartition('-')[0]}@{digest[0]}"


def run(*words: str) -> str:
    """Run a program, and return what it says; what it says is in the error if it fails."""
    done = subprocess.run(
        words, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        raise ValueError(f"{' '.join(words[:2])}: {done.stdout.strip()}")
    return done.stdout


def push(folder: Path, registry: str, only: str = "", *, plain: bool = False) -> list[str]:
    """Push a release, or one thing of it, and return names with digests."""
    found = contents(folder)
    if only and only not in found:
        raise ValueError(f"{folder} has no {only}: it has {', '.join(found) or 'nothing to push'}")
    made = []
    for name, path in found.items():
        if only in {"", name}:
            upload = push_chart if path.suffix == ".tgz" else push_image
            made.append(upload(path, registry.rstrip("/"), plain=plain))
            print(made[-1], flush=True)
    return made


def main(argv: Sequence[str]) -> int:
    """See the module; return 0 if everything was pushed."""
    parser = argparse.ArgumentParser("push.py", usage=__doc__)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--plain-http", action="store_true")
    if "--names" not in argv:
        parser.add_argument("registry")
    parser.add_argument("folder", nargs="?", type=Path, default=RELEASE)
    options = parser.parse_args(argv)
    if options.names:
        print(json.dumps([*contents(options.folder)]))
        return 0
    try:
        push(options.folder, options.registry, options.only, plain=options.plain_http)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"push.py: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
