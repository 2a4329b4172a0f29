"""Import every module of an image and run every command that we have. Prints JSON.

It runs in the image, or on the folder of its packages: as ``python3 -c``, with the root of a node
for the doctor as argument. More arguments are the only packages of ours to look at, without it.
"""

import contextlib
import importlib
import io
import json
import re
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, distributions, entry_points
from pathlib import Path


def modules(packages: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the modules that cannot be imported, and why."""
    folder = Path(importlib.import_module("deviceplugin").__file__ or "").parents[1]
    found = [path for package in packages for path in folder.glob(f"{package}/**/*.py")]
    for path in sorted(found):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        if not name.endswith("__main__"):  # which would run
            try:
                importlib.import_module(name)
            except ImportError as error:
                yield name, str(error)


def run(script: EntryPoint, *words: str) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it printed, or a traceback."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.argv = sys.argv, [script.name, *words]
    status: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = script.load()()
        except SystemExit as done:
            status = done.code
        except BaseException:
            status = 1
            traceback.print_exc()
    sys.argv = before
    return (status if isinstance(status, int) else 0), out.getvalue(), err.getvalue()


def listed(text: str) -> list[str]:
    """Return the commands that a help lists."""
    rest = re.split("^(?:commands|positional arguments):", text, maxsplit=1, flags=re.MULTILINE)[1:]
    return re.findall(r"^ {2,4}([a-z][a-z-]+) {2,}\S", "".join(rest), re.MULTILINE)


def known(script: str, text: str) -> list[str]:
    """Return the commands of a program, those of ``deviceplugin`` with what is not installed."""
    if script == "device-plugins":
        return [one.name for one in entry_points(group="deviceplugin.plugins")]
    ours = importlib.import_module("deviceplugin.__main__").COMMANDS
    return [*ours] if script == "deviceplugin" else listed(text)


def commands(packages: list[str]) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield each command line with its exit status and the errors that it printed."""
    own = [one for one in distributions() if one.name.replace("-", "_") in packages]
    scripts = [each for one in own for each in one.entry_points if each.group == "console_scripts"]
    for script in scripts:
        status, out, err = run(script, "--help")
        yield script.name, (status, err)
        for name in known(script.name, out):
            status, _, err = run(script, name, "--help")
            yield f"{script.name} {name}", (status, err)


def findings(node: str) -> object:
    """Return what the doctor finds on a node, or the errors that it printed."""
    (script,) = entry_points(group="console_scripts", name="deviceplugin")
    _, out, err = run(script, "doctor", f"--root={node}", "--json")
    return json.loads(out)["findings"] if out else err


if __name__ == "__main__":
    node, *asked = sys.argv[1:]
    every = {one.name.replace("-", "_") for one in distributions()}
    packages = asked or sorted(one for one in every if one.startswith("deviceplugin"))
    report = {"commands": dict(commands(packages)), "modules": dict(modules(packages))}
    sys.stdout.write(json.dumps(report if asked else {**report, "doctor": findings(node)}))
