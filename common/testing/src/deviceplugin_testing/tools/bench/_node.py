"""Measuring what a node pays for several plugins: each in its own process, or all in one."""

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from deviceplugin_testing.conformance._proc import Holdings
from deviceplugin_testing.tools.bench._errors import BenchError
from deviceplugin_testing.tools.bench._figures import Figure, Section
from deviceplugin_testing.tools.bench._plan import Say
from deviceplugin_testing.tools.bench._subject import Run, Subject, running

APART: Final = "each in its own process"
TOGETHER: Final = "all in one process"
_AGENT: Final = "device-plugins"
_MIB: Final = 1024 * 1024
_PATHS: Final = {
    "name": "dev",
    "groups": [{"paths": [{"path": "{devices_dir}/*", "type": "Mount"}]}],
}
PLUGINS: Final[Mapping[str, tuple[Mapping[str, Any], int]]] = {
    "gopher": ({"directory": "{devices_dir}"}, 1),
    "simulated": ({"number-devices": 8}, 1),
    "generic": ({"devices": [_PATHS]}, 1),
    "fpga": ({}, 0),
    "amd": ({}, 0),
}
"""Each with its settings, and the number of its resources on a node without hardware."""
_FLAGS: Final = {"devices": "device"}
"""Flags whose names differ from the settings: this one is for one entry, and may be repeated."""


def measure(settle: float, say: Say) -> Iterator[Section]:
    """Yield the memory and threads of the first 1 to 5 of ``PLUGINS``, apart and together.

    Raises:
        BenchError: One of the plugins is not installed, or does not register.
    """
    names = list(PLUGINS)
    for title, subjects in ((APART, _apart), (TOGETHER, _together)):
        figures: list[Figure] = []
        for count in range(1, len(names) + 1):
            say(f"{count} plugins, {title}")
            figures += _figures(count, _measured(subjects(names[:count]), settle))
        yield Section(title, (), figures)


def _figures(count: int, measured: Sequence[Holdings]) -> Iterator[Figure]:
    of = f"of {count} plugin{'s' * (count > 1)}"
    yield Figure(f"RSS {of}", "MiB", [sum(each.rss for each in measured) / _MIB])
    yield Figure(f"PSS {of}", "MiB", [sum(each.pss for each in measured) / _MIB])
    yield Figure(f"threads {of}", "", [sum(each.threads for each in measured)])


def _measured(subjects: Sequence[Subject], settle: float) -> list[Holdings]:
    with ExitStack() as stack:
        runs: list[Run] = [stack.enter_context(running(subject)) for subject in subjects]
        for run in runs:
            run.wait(lambda run=run: _is_up(run), "all lists")  # type: ignore[misc]
        time.sleep(settle)
        return [run.holdings() for run in runs]


def _is_up(run: Run) -> bool:
    """Return whether the plugin has sent its lists; one without devices, whether it has begun."""
    names = run.kubelet.registered
    if len(names) < run.subject.resources:
        return False
    if not run.subject.resources:
        return run.holdings().threads > 1  # it serves nothing, but has its threads
    return all(map(run.kubelet.lists_received, names))


def _apart(names: Sequence[str]) -> list[Subject]:
    subjects = []
    for name in names:
        settings, resources = PLUGINS[name]
        flags = [f"--{_FLAGS.get(key, key)}={_flag(value)}" for key, value in settings.items()]
        command = (_program(f"{name}-device-plugin"), *flags)
        subjects.append(Subject(title=name, command=command, resources=resources))
    return subjects


def _together(names: Sequence[str]) -> list[Subject]:
    sections = [f"--{name}={json.dumps(PLUGINS[name][0])}" for name in names]
    resources = sum(PLUGINS[name][1] for name in names)
    command = (_program(_AGENT), *names, *sections)
    return [Subject(title=_AGENT, command=command, resources=resources)]


def _flag(value: Any) -> str:
    if isinstance(value, list):
        (value,) = value
    return value if isinstance(value, str) else json.dumps(value)


def _program(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    if path is None:
        raise BenchError(f"{name} is not installed")
    return path
