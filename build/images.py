"""Build the images of plugins and operator, and write each as an OCI archive with its SBOM.

    images.py --names
    images.py [NAME...] [--build-image IMAGE] [--base-image IMAGE] [--prefix PREFIX]
              [--platform linux/amd64,linux/arm64]
    images.py [NAME...] --join amd64,arm64

It uses buildah, podman, docker or nerdctl, the first that works, and passes arguments after `--` to
its build. NAME is a folder of plugins/, or ``operator``; without one, all images are built. It
prints the size of each image. With ``--names`` it only prints the plugins, as JSON.

With ``--platform`` it builds for these, if the tool can: another one than this machine's is
emulated. The archives of a platform are in dist/images/ARCHITECTURE. ``--join`` makes one archive
of them, with the images for all and their SBOMs attached, in dist/images; it needs no tool, and
takes what was built on different machines. With several platforms, both is done.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import sbom
import versions
from archive import Archive, Sizes
from join import join

ROOT: Final = Path(__file__).parents[1]
TARGET: Final = ROOT / "dist" / "images"
TOOLS: Final = ("buildah", "podman", "docker", "nerdctl")
MIB: Final = 1024**2
OPERATOR: Final = "operator"


@dataclass(frozen=True, slots=True)
class Image:
    """What is built: an image of a plugin, or of the operator."""

    name: str
    """What the command line and the table call it."""
    title: str
    """The name of the image."""
    project: Path
    """The folder of its package."""
    dockerfile: str
    folder: str
    """Where its program is."""
    arguments: dict[str, str] = field(default_factory=dict)
    """Arguments of its Dockerfile."""


def plugins() -> list[str]:
    """Return the plugins that are deployed."""
    folders = ROOT.glob("deployments/*/kustomization.yaml")
    return sorted(path.parent.name for path in folders if path.parent.name != "base")


def image(name: str) -> Image:
    """Return what the command line calls ``name``."""
    if name == OPERATOR:
        project, file = ROOT / OPERATOR, "build/operator.Dockerfile"
        return Image(name, "deviceplugin-operator", project, file, "opt/operator")
    project, file = ROOT / "plugins" / name, "build/Dockerfile"
    return Image(name, f"{name}-device-plugin", project, file, "opt/plugin", {"PLUGIN": name})


def pinned(dockerfile: str) -> str:
    """Return the image, with its digest, that a Dockerfile builds in unless another is named."""
    text = (ROOT / dockerfile).read_text(encoding="utf-8")
    (found,) = re.findall(r"^FROM (\S+) AS pinned$", text, re.MULTILINE)
    return str(found)


def revision() -> str:
    """Return the commit that is built; ``unknown`` without git."""
    if shutil.which("git") is None:
        return "unknown"
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def build(
    tool: str, name: str, dockerfile: str, arguments: dict[str, str], more: Sequence[str]
) -> None:
    """Build the image ``name``. ``more`` are arguments of the tool's."""
    words = [tool, "build", "--file", dockerfile, "--tag", name]
    if tool == "buildah":
        words[1:2] = ["build", "--layers", "--ignorefile", f"{dockerfile}.dockerignore"]
    for key, value in arguments.items():
        words += ["--build-arg", f"{key}={value}"]
    # Without this, docker adds attestations, and writes an archive of several images.
    environment = {**os.environ, "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    subprocess.run([*words, *more, "."], cwd=ROOT, env=environment, check=True, stdout=sys.stderr)


def save(tool: str, name: str, path: Path) -> None:
    """Write the image ``name`` to ``path``. Docker's own format contains the OCI format."""
    path.unlink(missing_ok=True)
    own = name if "/" in name else f"localhost/{name}"
    words = ["push", "--quiet", own, f"oci-archive:{path}:{in_full(name)}"]
    if tool in {"docker", "nerdctl"}:  # they add the name by themselves
        words = ["save", "--output", str(path), name]
    subprocess.run([tool, *words], check=True, stdout=sys.stderr)


def in_full(name: str) -> str:
    """Return the full name of an image: containerd imports it under the archive's name only."""
    first, slash, _ = name.partition("/")
    if slash and (first == "localhost" or set(".:") & set(first)):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def describe(made: Image, path: Path) -> Sizes:
    """Write the SBOM and the sizes beside an archive, and return the sizes."""
    archive = Archive(path)
    with tempfile.TemporaryDirectory() as root:
        archive.extract(Path(root))
        inner = json.loads(Path(root, made.folder, "sbom.cdx.json").read_text(encoding="utf-8"))
        whole = sbom.complete(inner, Path(root))
    path.with_suffix(".cdx.json").write_text(sbom.text_of(whole), encoding="utf-8")
    sizes = archive.sizes()
    path.with_suffix(".sizes.json").write_text(json.dumps(asdict(sizes), indent=1) + "\n")
    return sizes


def row(name: str, sizes: Sizes) -> str:
    """Return a row of the table, in MiB."""
    numbers = (sizes.plugin, sizes.plugin_compressed, sizes.whole, sizes.whole_compressed)
    parts = [f"{part} {size / MIB:.1f}" for part, size in sizes.parts.items() if size > 0.1 * MIB]
    cells = [name, *(f"{number / MIB:.1f}" for number in numbers), ", ".join(parts)]
    return f"| {' | '.join(cells)} |"


def full_name(made: Image, prefix: str) -> str:
    """Return the name of an image, with its version."""
    return f"{prefix}{made.title}:{versions.of(made.project)}"


def archive_of(made: Image, platform: str) -> Path:
    """Return where the archive of an image for a platform is written."""
    return TARGET / architecture(platform) / f"{made.title}-{versions.of(made.project)}.tar"


def write(
    tool: str, made: Image, options: argparse.Namespace, platform: str, more: Sequence[str]
) -> None:
    """Build an image for a platform, by default this machine's, and write its archive."""
    name, path = full_name(made, options.prefix), archive_of(made, platform)
    arguments = {**made.arguments, "VERSION": versions.of(made.project), "REVISION": revision()}
    # A stage will not do: buildah takes it for an image.
    arguments["BUILD_IMAGE"] = pinned(made.dockerfile)
    for key in ("build_image", "base_image"):
        if getattr(options, key):
            arguments[key.upper()] = getattr(options, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    chosen = ["--platform", platform] if platform else []
    build(tool, name, made.dockerfile, arguments, [*chosen, *more])
    save(tool, name, path)


def make(tool: str, made: Image, options: argparse.Namespace, more: Sequence[str]) -> None:
    """Build an image for all platforms, and print a row for each."""
    for platform in options.platform:
        write(tool, made, options, platform, more)
        sizes = describe(made, archive_of(made, platform))
        print(row(f"{made.name} {architecture(platform)}".strip(), sizes), flush=True)


def make_or_join(tool: str, made: Image, options: argparse.Namespace, more: Sequence[str]) -> None:
    """Do what the command line says with one image."""
    if not options.join:
        make(tool, made, options, more)
    if options.join or len(options.platform) > 1:
        join_all(made, options.join or [*map(architecture, options.platform)])


def architecture(platform: str) -> str:
    """Return what Kubernetes calls the architecture of a platform: arm64 of linux/arm64/v8."""
    return platform.split("/")[1] if platform else ""


def join_all(made: Image, architectures: Sequence[str]) -> None:
    """Make one archive of an image's archives for several architectures."""
    name = f"{made.title}-{versions.of(made.project)}.tar"
    path = TARGET / name
    join([TARGET / one / name for one in architectures], path)
    for suffix in (".cdx.json", ".sizes.json"):  # of one platform, built before
        path.with_suffix(suffix).unlink(missing_ok=True)
    print(f"{made.name}: {', '.join(architectures)}")


def platforms(text: str) -> list[str]:
    """Return the platforms of the command line."""
    found = text.split(",")
    for one in found:
        if not re.fullmatch(r"linux/[a-z0-9]+(/v\d+)?", one):
            raise argparse.ArgumentTypeError(f"{one!r} is not a platform such as linux/arm64")
    if len(set(map(architecture, found))) < len(found):
        raise argparse.ArgumentTypeError(f"{text!r} has an architecture twice")
    return found


def read(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the command line, and what stands after ``--``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="*", help="a folder in plugins/, or operator (all of them)")
    add_bases(parser)
    parser.add_argument("--prefix", default="", help="prefix of names: registry.example.com/")
    parser.add_argument("--platform", type=platforms, default=[""], help="such as linux/arm64")
    parser.add_argument("--join", type=lambda text: text.split(","), help="such as amd64,arm64")
    parser.add_argument("--names", action="store_true", help="print the plugins, and build nothing")
    own, more = split(argv)
    return parser.parse_args(own), more


def add_bases(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what an image is built in and on."""
    parser.add_argument("--build-image", help="image with Python, pip and ldd; see the Dockerfile")
    parser.add_argument("--base-image", help="the base of the images")


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what stands before ``--``, and what is for the build tool."""
    at = [*argv, "--"].index("--")
    return [*argv[:at]], [*argv[at + 1 :]]


def tool() -> str:
    """Return the first tool that works here; empty if none does. What is left out is said."""
    if named := os.environ.get("IMAGE_TOOL"):
        return named
    for name in filter(shutil.which, TOOLS):
        done = subprocess.run([name, "info"], capture_output=True, text=True, check=False)
        if not done.returncode:
            return name
        said = done.stderr.strip().splitlines() or ["it does not work"]
        print(f"{name} is left out: {said[0]}", file=sys.stderr)
    return ""


def main(argv: Sequence[str]) -> int:
    """Build the images; return 0 if all of them were built."""
    options, more = read(argv)
    if options.names:
        print(json.dumps(plugins()))
        return 0
    chosen = "" if options.join else tool()
    if not options.join:
        if not chosen:
            sys.stderr.write(f"images.py: none of {', '.join(TOOLS)} is installed and works\n")
            return 1
        print("| Image | Program | compressed | Image | compressed | Parts of the program |")
        print("|---|---|---|---|---|---|")
    for made in map(image, options.name or [*plugins(), OPERATOR]):
        try:
            make_or_join(chosen, made, options, more)
        except subprocess.CalledProcessError as error:
            why = f"{chosen} ended with status {error.returncode}; its output is above"
            hint = "without a registry, see build/README.md"
            name = full_name(made, options.prefix)
            sys.stderr.write(f"images.py: {name}: {why}; {hint}\n")
            return 1
        except (OSError, ValueError) as error:
            sys.stderr.write(f"images.py: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
