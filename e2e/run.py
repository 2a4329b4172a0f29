"""Run the end to end suite on the cluster of KUBECONFIG: `make e2e`.

    make e2e ARGS="[PART...] [OPTION...]"

A PART is a plugin, or `operator`; without one, all run whose images the node has. What an option
needs is skipped without it. Ctrl-C ends it, and leaves nothing on the cluster. The exit status is
0 if something was tried and nothing failed, and 2 if something is missing.
"""

import argparse
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import images
import versions
from clusters import Node, StepError
from to_cluster import ask

ROOT: Final = images.ROOT
PLUGINS: Final = sorted(path.parent.name for path in ROOT.glob("tests/plugins/*/case.py"))
PARTS: Final = [*PLUGINS, images.OPERATOR]
LISTED: Final = 50  # images of its node that a kubelet lists, the largest
LATE: Final = 60.0  # seconds after which it lists a new one


class Summary:
    """Collects how each test ended, by its id."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self.ended: dict[str, str] = {}
        self.texts: list[str] = []
        """What failed, and how."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.failed:
            self.texts.append(f"{name}, {report.when}\n{report.longreprtext}\n")
        if report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.ended[name] = str(why).replace("Skipped", "skipped")
        elif report.failed or report.when == "call":
            self.ended[name] = report.outcome

    def lines(self) -> Iterator[str]:
        """Yield a line for each file, and one for each of its tests, named as a sentence."""
        file = ""
        for name, ended in sorted(self.ended.items(), key=lambda one: one[0].partition("::")[0]):
            place, _, test = name.partition("::")
            if place != file:
                yield place
            file, sentence = place, test.removeprefix("test_").replace("_", " ")
            yield f"  {sentence.replace('[', ' [')}: {ended}, {self._seconds[name]:.0f} s"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("scenarios")
        for line in self.lines():
            terminalreporter.write_line(line)


def read(argv: Sequence[str]) -> tuple[list[str], list[str], argparse.Namespace]:
    """Return the parts, the options, and those of the options that are needed here."""
    first = next((at for at, word in enumerate(argv) if word.startswith("-")), len(argv))
    parts, options = [*argv[:first]], [*argv[first:]]
    if wrong := [one for one in parts if one not in PARTS]:
        raise StepError(f"{wrong[0]!r} is not a part of the suite: there are {', '.join(PARTS)}")
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("image", "node"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--logs", default="dist/e2e")
    parser.add_argument("--patience", type=float, default=LATE)
    known, _ = parser.parse_known_args(options)
    if known.image and len(parts) != 1:
        raise StepError(f"--image {known.image} is of one part: name it before the options")
    return parts, options, known


def check_config() -> None:
    config = os.environ.get("KUBECONFIG", "")
    if not config:
        raise StepError(
            "KUBECONFIG is not set, and no cluster is used by accident: export "
            "KUBECONFIG=~/.kube/config; `kind create cluster` makes a cluster"
        )
    if not any(Path(one).is_file() for one in config.split(os.pathsep)):
        raise StepError(f"KUBECONFIG={config}: there is no such file")


def needed(part: str) -> Mapping[str, images.Image]:
    """Return the images that a part of the suite needs, by name and tag."""
    made = map(images.image, [part, "simulated"] if part == images.OPERATOR else [part])
    return {f"{one.title}:{versions.of(one.project)}": one for one in made}


def choose(parts: Sequence[str], known: argparse.Namespace) -> tuple[list[str], str]:
    """Return what is run, and which images the node lacks and how they come there."""
    node = ask("node", known.node)[0] if known.node else ask("nodes")[0]
    there, name = node["status"].get("images", ()), node["metadata"]["name"]
    if known.image or not 0 < len(there) < LISTED:
        return [*(parts or PARTS)], ""
    listed = {one.rpartition("/")[2] for image in there for one in image.get("names") or ()}
    found = [part for part in parts or PARTS if not needed(part).keys() - listed]
    lacking = [part for part in parts or PARTS if part not in found]
    if not lacking:
        return found, ""
    if found and not parts:
        return found, f"left out, as {name} has no images of them: {', '.join(lacking)}"
    made = needed(lacking[0] if parts else "gopher")
    return [], f"{name} has no {', '.join(made.keys() - listed)}: {how(node, made.values())}"


def how(node: Mapping[str, Any], made: Iterable[images.Image]) -> str:
    """Return the commands that build images and bring them to a node."""
    try:
        command = Node.of(node).kind().command
    except StepError as error:
        command = f"bring FILE there ({error})"
    command = command if "FILE" in command else f"{command} < FILE"
    files = {one.name: os.path.relpath(images.archive_of(one, ""), ROOT) for one in made}
    built = f"make images ARGS='{' '.join(files)}'"
    return "; ".join([built, *(command.replace("FILE", file) for file in files.values())])


def wait(parts: Sequence[str], known: argparse.Namespace) -> list[str]:
    """Return what is run. What is missing is said at once, and looked for again for a minute."""
    end, said = time.monotonic() + min(LATE, known.patience), ""
    while True:
        chosen, missing = choose(parts, known)
        if missing != said:
            print(f"e2e: {missing}", flush=True)
        if chosen:
            return chosen
        if time.monotonic() >= end:
            raise StepError("the node does not list it yet, which can take it a minute")
        said = missing
        time.sleep(2)


def marks(chosen: Sequence[str], *, named: bool) -> str:
    """Return the expression that chooses tests: one of two plugins is run only with both."""
    others = " or ".join(part for part in PARTS if part not in chosen)
    wanted = f"({' or '.join(chosen)})" if named else ""
    return " and ".join(filter(None, (wanted, others and f"not ({others})")))


def run(mark: str, options: Sequence[str], logs: Path) -> int:
    """Run the suite, and pack what it has collected of failures into one archive."""
    folder = logs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    folder.mkdir(parents=True)
    summary = Summary()
    words = ["e2e", "-n", "0", "-v", "-p", "no:randomly", "-o", "console_output_style=count"]
    try:
        status = pytest.main(
            [*words, "-m", mark, *options, "--cluster", f"--logs={folder}"], [summary]
        )
        if summary.texts:
            text = "\n".join([*summary.lines(), "", *summary.texts])
            (folder / "summary.txt").write_text(text, encoding="utf-8")
            with tarfile.open(f"{folder}.tar.gz", "w:gz") as archive:
                archive.add(folder, folder.name)
            print(f"e2e: what failed, with logs and objects: {folder}.tar.gz")
    finally:
        shutil.rmtree(folder)
    if not status and "passed" not in summary.ended.values():
        print("e2e: nothing was tried")
        return 1
    return int(status)


def main(argv: Sequence[str]) -> int:
    """See the module."""
    if "--help" in argv:
        print(__doc__)
        return int(pytest.main(["e2e", "--help"]))
    try:
        parts, options, known = read(argv)
        check_config()
        mark = marks(wait(parts, known), named=bool(parts))
    except (StepError, OSError, ValueError) as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return run(mark, options, Path(known.logs))


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(main(sys.argv[1:]))
