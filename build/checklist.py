"""Run plugins of this repository, and report what they lack of common/docs/new-plugin.md.

    .venv/bin/python build/checklist.py PLUGIN...

It runs the plugin on the hardware that the end to end suite pretends, then all tests that concern
it. It exits with 1 if one lacks something.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FILES: Final = {
    "plugins/{0}/README.md": "a page: what it is, how it is run, its settings",
    "plugins/{0}/src/deviceplugin_{0}/py.typed": "it, empty: the types are public",
    "deployments/{0}/kustomization.yaml": "its deployment",
    "demo/examples/{0}/pod.yaml": "a pod that asks for a device",
    "demo/examples/{0}/README.md": "what the example needs and what one will see",
    "tests/plugins/{0}/case.py": "its case of the end to end suite",
}
"""What no run shows."""
SUITES: Final = (
    "e2e/test_homes.py",
    "tests/contract/test_build.py",
    "tests/contract/test_deployments.py",
    "tests/contract/test_docs.py",
    "tests/operator/test_crd.py",
    "tests/plugins/node",
)
"""Tests of every plugin. Each of these must have one that runs for the plugin."""
OF_ALL: Final = {
    "tests/contract/test_deploying_page.py": "every_component",
    "tests/operator/test_crd.py": "the_file_is_what",
    "tests/operator/test_limits.py": "somebody_has_judged",
    "tests/operator/test_manifests.py": "sample",
    "tests/record/test_plugins.py": "reads_sysfs",
}
"""Tests of what all plugins have, and words of their names."""


def plugins(root: Path = ROOT) -> list[str]:
    """Return the names of all plugins. The template is none: it only exists to be copied."""
    found = {path.parent.name for path in root.glob("plugins/*/pyproject.toml")}
    return sorted(found - {"template"})


def missing(plugin: str, root: Path = ROOT) -> list[str]:
    """Return what ``plugin`` lacks, apart from its tests: a message for each."""
    lines = [
        f"{place.format(plugin)}: add {what}; that of gopher is an example"
        for place, what in FILES.items()
        if not (root / place.format(plugin)).is_file()
    ]
    tests = (f"plugins/{plugin}/tests/test_*.py", f"tests/plugins/{plugin}/test_*.py")
    if not any([*root.glob(one)] for one in tests):
        lines.append(f"plugins/{plugin}/tests: add tests, on the simulated kubelet")
    workspace = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    if f"plugins/{plugin}/src" not in workspace["tool"]["mypy"]["mypy_path"]:
        lines.append(f'pyproject.toml: add "plugins/{plugin}/src" to mypy_path')
    if plugin != "node" and not lines:
        lines += _of_runs(plugin, root)
    return lines


def _of_runs(plugin: str, root: Path) -> Iterator[str]:
    """Yield what a plugin fails to do on the hardware of its case."""
    sys.path[:0] = [str(root / "tests/support"), str(root / "e2e/support")]
    from agents.agent_node import agent_node

    with tempfile.TemporaryDirectory(prefix="checklist-") as name:
        folder = Path(name)
        node = agent_node(folder / "node", folder / "cache", [plugin])
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(node.config.read_text())[plugin]))
        own = Path(sys.executable).with_name(f"{plugin}-device-plugin")
        agent = Path(sys.executable).with_name("device-plugins")
        for words in (
            [str(own), f"--config={file}", "--print-config"],
            [str(own), f"--config={file}", "--once"],
            [str(agent), f"--config={node.config}", "--print-config"],
        ):
            try:
                done = subprocess.run(
                    words,
                    env={**os.environ, **node.environment},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            except FileNotFoundError:
                yield f"{own}: is not there: add the command to scripts, then make setup"
                return
            if done.returncode:
                output = (done.stderr or done.stdout).strip()
                yield f"{Path(words[0]).name} {words[-1]}: status {done.returncode}: {output}"


def untested(plugin: str, root: Path = ROOT) -> list[str]:
    """Run all tests that concern ``plugin``; return those that fail, and suites without one."""
    own = [one for one in (f"plugins/{plugin}", f"tests/plugins/{plugin}") if (root / one).is_dir()]
    words = " or ".join((plugin, *OF_ALL.values()))
    command = [sys.executable, "-m", "pytest", "-q", "-rpfE", "-p", "no:cacheprovider", "-k", words]
    places = dict.fromkeys((*own, *SUITES, *OF_ALL))
    done = subprocess.run(
        [*command, *places],
        cwd=root,
        env={one: text for one, text in os.environ.items() if not one.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    if not found:
        return [f"pytest: status {done.returncode}: {(done.stderr or done.stdout).strip()}"]
    passed = [name for verdict, name in found if verdict == "PASSED" and plugin in name]
    lacking = [one for one in SUITES if not any(name.startswith(one) for name in passed)]
    return [
        *(f"{name}: fails" for verdict, name in found if verdict != "PASSED"),
        *(f"{one}: has no test that passes for {plugin}" for one in lacking),
    ]


def main(words: Sequence[str]) -> int:
    """Print what is missing; 1 if anything is."""
    if unknown := sorted({*words} - {*plugins()}) or not words:
        known = ", ".join(plugins())
        sys.stderr.write(f"checklist.py: no plugin {unknown}: name some of {known}\n")
        return 2
    lines = [f"{one}: {line}" for one in words for line in missing(one) or untested(one)]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
