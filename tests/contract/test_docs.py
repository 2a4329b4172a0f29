"""The documentation is true: its examples run, its tables say what the code says, its links lead.

A ``python`` block is executed as a module of its own; with ``<!-- continues -->`` above it, it is
joined to the block before. Its test functions are run with the fixtures that they name. A
``console`` block with ``<!-- run -->`` above it is run by a shell, and its output compared.
"""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest

import deviceplugin as dp
from deviceplugin import errors
from deviceplugin._app import host
from deviceplugin._attribution import checkpoint, forgotten, poll_schedule, releases
from deviceplugin._attribution.poll_schedule import AttributionTiming
from deviceplugin._config import loading, quantities, values
from deviceplugin._config.documents import faults, nodes, places
from deviceplugin._config.settings_class import helps
from deviceplugin._discovery import found as _found
from deviceplugin._discovery import loop, retention, triggers
from deviceplugin._discovery.found import sort_out
from deviceplugin._http import page as _page
from deviceplugin._kubelet import endpoint, service, streams
from deviceplugin._platform import api_errors as _errors
from deviceplugin._registration import by_kubelet_socket
from deviceplugin._telemetry import events
from deviceplugin._telemetry.metrics import Attribution, Metrics, NotHealthy, Offered
from deviceplugin.proto.v1beta1 import MAX_LIST_BYTES, PRE_START_TIMEOUT
from deviceplugin.tools import _devices_page
from deviceplugin.tools.events import _notice, _watch
from deviceplugin.tools.evict import _evictor
from deviceplugin.tools.startup_taint import _keeper
from deviceplugin_gopher import GopherSettings
from deviceplugin_testing.fixture import Kubelet, Node

ROOT = Path(__file__).parents[2]
DOCS = sorted(
    path
    for pattern in (
        *("common/*/README.md", "common/docs/**/*.md", "plugins/**/*.md"),
        *("*.md", "operator/**/*.md", "deployments/*/README.md", "demo/**/*.md"),
        *("e2e/**/README.md", "tests/**/README.md"),
    )
    for path in ROOT.glob(pattern)
)
KIT = ROOT / "common/docs/kit.md"
AUTHORS_PLUGIN = ROOT / "plugins/template/src/deviceplugin_template/__init__.py"
AUTHORS_TEST = ROOT / "plugins/template/tests/test_serial.py"

TIMING = AttributionTiming.of(dp.Settings().pod_resources_interval.total_seconds())
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>\w+) -->\n)?(?P<fence>```+)(?P<kind>\w*)\n(?P<body>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


class Block(NamedTuple):
    path: Path
    line: int
    kind: str
    mark: str
    body: str
    before: str = ""
    """The blocks that it continues."""

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


@cache
def blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            path,
            text.count("\n", 0, found.start("body")) + 1,
            found["kind"],
            found["mark"] or "",
            found["body"],
        )
        for found in _BLOCK.finditer(text)
    ]


def python_blocks(path: Path) -> Iterator[Block]:
    source = ""
    for block in blocks(path):
        if block.kind == "python":
            before = source if block.mark == "continues" else ""
            # Lines keep their numbers, so that an error names the place in the page.
            before += "\n" * (block.line - 1 - before.count("\n"))
            source = before + block.body
            yield block._replace(before=before)


PROGRAMS = [block for path in DOCS for block in python_blocks(path)]
TESTS = [
    pytest.param(program, node.name, id=f"{program}-{node.name}")
    for program in PROGRAMS
    for node in ast.parse(program.body).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
]


def execute(program: Block) -> dict[str, Any]:
    module = types.ModuleType(f"documentation_{program.line}")
    sys.modules[module.__name__] = module  # where dataclasses look for annotations
    exec(compile(program.before + program.body, str(program.path), "exec"), vars(module))
    return vars(module)


def rows(path: Path, heading: str) -> list[list[str]]:
    """Return the cells of the first table below ``heading``, without its header."""
    text = path.read_text(encoding="utf-8").partition(f"# {heading}\n")[2]
    lines = iter(text.splitlines())
    found: list[str] = []
    for line in lines:
        if line.startswith("|"):
            found.append(line)
        elif found:
            break
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in found[2:]]


def code(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_every_python_block_runs(program: Block) -> None:
    execute(program)


@pytest.mark.parametrize(("program", "name"), TESTS)
def test_every_test_in_a_block_passes(
    program: Block, name: str, request: pytest.FixtureRequest
) -> None:
    test = execute(program)[name]
    test(
        **{needed: request.getfixturevalue(needed) for needed in inspect.signature(test).parameters}
    )


@pytest.mark.parametrize(
    "block",
    [block for path in DOCS for block in blocks(path) if block.mark == "run"],
    ids=str,
)
def test_every_command_prints_what_its_page_shows(block: Block, tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DP_")}
    environ["PATH"] = f"{Path(sys.executable).parent}:{environ['PATH']}"
    shown = ""
    for line in block.body.splitlines():
        if not line.startswith("$ "):
            continue
        result = subprocess.run(
            ["sh", "-c", line[2:]],
            cwd=tmp_path,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        shown += f"{line}\n{result.stdout}"
    assert shown == block.body


def test_every_mark_is_known() -> None:
    marks = {block.mark for path in DOCS for block in blocks(path)}
    assert marks <= {"", "continues", "run"}


@pytest.mark.parametrize(("source", "most"), [(AUTHORS_PLUGIN, 15), (AUTHORS_TEST, 8)])
def test_the_readme_shows_the_template_as_it_is(source: Path, most: int) -> None:
    page = blocks(ROOT / "README.md")
    assert code(source) in [block.body for block in page if block.kind == "python"]
    assert sum(bool(line.strip()) for line in code(source).splitlines()) <= most


@pytest.mark.parametrize(
    ("settings", "page", "heading"),
    [
        (dp.Settings, "common/docs/settings.md", "All settings"),
        (GopherSettings, "plugins/gopher/README.md", "Settings"),
    ],
)
def test_the_page_lists_the_settings_of_the_code(
    settings: type[dp.Settings], page: str, heading: str
) -> None:
    common = {field.name for field in fields(dp.Settings)} if settings is not dp.Settings else ()
    own = {loading.key(one): one for one in fields(settings) if one.name not in common}
    texts = helps(settings)
    assert rows(ROOT / page, heading) == [
        [f"`{key}`", f"`{values.write(field.default)}`", texts[key]] for key, field in own.items()
    ]


def real_metrics() -> set[tuple[str, str, str]]:
    """Return name, type and labels of each metric as they appear on ``/metrics``."""
    metrics = Metrics()
    metrics.devices = lambda: [("example.com/a", 1, 0)]
    holders = {"d": [("example.com/a", "d", "default", "pod", "main")]}
    troubled = [NotHealthy("e", "unhealthy", "too hot", 0)]
    parts = {"1g": {"made": 1, "free": 1, "blocked": 0, "possible": 1}}
    one = Attribution("example.com/a", 1, 0, holders, 0, troubled, parts=parts)
    metrics.attribution = lambda: [one]
    metrics.offered = lambda: [Offered("example.com/a", 1, frozenset(), 0)]
    found = set()
    own = {each.name: each.label_names for each in metrics.instruments}
    for family in metrics.exposition.families():
        labels = own[family.name] if family.name in own else tuple(family.samples[0].labels)
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        shown = ", ".join(f"`{label}`" for label in labels)
        found.add((f"`{family.name}{suffix}`", family.type, shown))
    # What is not in the registry comes last.
    name, sample = metrics.expose("")[1].decode().splitlines()[-1].split("{")
    labels = re.findall(r'(\w+)="', sample)
    return found | {(f"`{name}`", "gauge", ", ".join(f"`{label}`" for label in labels))}


def test_the_metrics_page_lists_the_metrics_of_the_code() -> None:
    actual = rows(ROOT / "common/docs/metrics.md", "Metrics")
    assert real_metrics() == {(name, kind, labels) for name, kind, labels, _ in actual}
    assert len(real_metrics()) == len(actual)


def test_the_devices_page_of_a_plugin_looks_as_documented(kubelet: Kubelet) -> None:
    page = blocks(ROOT / "common/docs/metrics.md")
    (program,) = [b for b in PROGRAMS if b.path.name == "metrics.md" and "Camera" in b.body]
    (shown,) = [json.loads(block.body) for block in page if block.kind == "json"]
    plugin: dp.Plugin = execute(program)["CameraPlugin"]()
    with kubelet.running(plugin, http_address="127.0.0.1:0") as node:
        node.wait_for("example.com/camera", {"cam0"}, {"cam1"})
        node.kubelet.wait(lambda: not node.host.ready())
        with urlopen(f"http://127.0.0.1:{node.host.http_port}/devices") as answer:
            actual = json.load(answer)
    for device, real in zip(
        shown["resources"][0]["devices"], actual["resources"][0]["devices"], strict=True
    ):
        real["since"] = device["since"]
    assert shown | {"boot": actual["boot"]} == actual


def public(owner: type) -> list[str]:
    return [
        name
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]


def test_the_plugins_page_lists_every_hook() -> None:
    actual = [
        re.match(r"`(\w+)\(", row[0]) for row in rows(ROOT / "common/docs/plugins.md", "Hooks")
    ]
    assert public(dp.Plugin) == [name[1] for name in actual if name]


LIMITS = {
    "plugins": [
        f"`hook-allocate`, one for each call | {service._ALLOCATE_TIMEOUT:g} s |",
        f"`hook-prefer`, one for each call | {service._PREFER_TIMEOUT:g} s |",
        f"`hook-pre_start`, one for each call | {PRE_START_TIMEOUT - 1:g} s |",
        f"a process that stops waits at most {host._STOP_TIMEOUT:g} s",
        f"tried again after {endpoint._START_AGAIN:g} s",
        f"called again after {triggers._LISTEN_AGAIN:g} s",
        f"`hook-released`, one for each call | {releases._TIMEOUT:g} s |",
    ],
    "registration": [
        f"is waited for, at most {host._STOP_TIMEOUT:g} s",
        f"a deadline of {by_kubelet_socket._REGISTER_TIMEOUT:g} s",
        f"a bound that doubles to {by_kubelet_socket._LONGEST_WAIT:g} s",
        f"from {endpoint._FIRST_WAIT / 2:g} s up to {endpoint._LONGEST_WAIT:g} s: two plugins",
        f"no stream is opened for {endpoint._STREAM_TIMEOUT:g} s after",
        f"8 s and {endpoint._LONGEST_STREAM_TIMEOUT:g} s | a timeout",
        f"`{streams.MAX_STREAMS} streams are open already`",
    ],
    "discovery": [
        f"a list of more than {MAX_LIST_BYTES // 1024**2} MiB",
        f"more than {_found.MAX_DEVICES:,} devices",
        f"a pause of {1000 * loop._REST:g} ms",
        f"at most every {retention._ASK_INTERVAL:g} s",
        f"`{retention.VANISHED}`",
        f"`{retention.HELD_BUT_ABSENT}`",
        f"`{retention.RECORDED_BUT_ABSENT}`",
    ],
    "attribution": [
        f"does not return within {releases._TIMEOUT:g} s",
        f"every `pod-resources-interval` ({TIMING.interval:g} s)",
        f"{TIMING.soon:g} s after an allocation; if more follow, {TIMING.at_last:g} s",
        f"with more than {poll_schedule._MOST_GETS} pods",
        f"{TIMING.retry:g} s after a failure",
        f"two polls, at least {TIMING.confirm:g} s apart",
        f"has run for two intervals ({TIMING.settle:g} s)",
        f"once it has been free for {TIMING.admission:g} s",
        f"with a limit of {forgotten._TIMEOUT:g} s",
        f"from 3 intervals ({TIMING.stale:g} s) after",
        f"has more than {checkpoint.MAX_BYTES // 1024**2} MiB",
        f"or {'a day' if TIMING.recorded == 86400 else ''} after its allocation",
    ],
    "node-tools": [
        f"has not been watching a resource for {_watch.SETTLE:g} s",
        f"which names {_notice.MOST_NAMED} of them",
        f"{_watch.BURST} Events in a row, then 1 a minute",
        f"after {_watch.FIRST_WAIT:g} s, doubled up to {_watch.LAST_WAIT:g} s",
        f"`Retry-After` is kept, up to {_errors.LONGEST_WAIT:g} s",
        f"For the last {'minute' if _evictor.CONFIRM == 60 else _evictor.CONFIRM} it",
        f"every {_keeper.SHOWN:g} s while the node has yet to show",
        f"at pauses of up to {_keeper._LAST_WAIT:g} s while the plugin",
        f"and every {_keeper.AGAIN / 60:g} minutes otherwise",
        f"unhealthy for {_watch.OLD.total_seconds() / 60:g} minutes or more",
        f"At most {_watch.MAX_SUBJECTS:,} devices are watched",
        f"and {_devices_page.MAX_BYTES // 1024**2} MiB read of a plugin's answer",
    ],
    "apiserver": [
        f"up to {_errors.LONGEST_WAIT:g} s",
    ],
    "fleet": [
        f"the unhealthy first, {_page.MAX_DEVICES} in all",
        f"those with problems first, {_page.MAX_RESOURCES} in all",
        f"the last {events.MAX_EVENTS}, of this process",
    ],
    "settings": [
        f"at most {places.LONGEST // 1024**2} MiB, as a ConfigMap",
        f"and {nodes.MAX_NODES:,} keys and values",
        f"of its faults, the first {faults.MOST} are listed",
    ],
    "log-events": [
        f"gets {events.AT_ONCE} lines at once",
        f"one in {events.PAUSE / 60:g} minutes",
        f"together {events.ALL_AT_ONCE} and then one in",
        f"then one in {events.ALL_PAUSE:g} s",
    ],
    "dra": [
        f"at most {len(str(quantities.TOO_LARGE - 1))} digits",
    ],
}
"""What pages say of constants of the code."""


@pytest.mark.parametrize("page", LIMITS)
def test_limits_and_reasons_are_those_of_the_code(page: str) -> None:
    said = code(ROOT / f"common/docs/{page}.md")
    assert [] == [text for text in LIMITS[page] if text not in said]


def test_the_testing_page_names_every_method_of_a_node() -> None:
    section = code(ROOT / "common/docs/testing.md").partition("## Node\n")[2].partition("\n## ")[0]
    assert set(public(Node)) <= set(re.findall(r"`(\w+)\(", section))


def test_the_devices_page_lists_every_field_of_a_device() -> None:
    table = rows(ROOT / "common/docs/devices.md", "Devices")
    assert [f"`{field.name}`" for field in fields(dp.Device)] == [row[0] for row in table]


SKIPPED: list[Any] = [
    "str",
    dp.Device("a", health=True),  # type: ignore[arg-type]
    dp.Device(""),
    dp.Device(" a"),
    dp.Device("a", nodes=[dp.DeviceNode("dev/x")]),
    dp.Device("a", nodes=[dp.DeviceNode("/dev/x", permissions="x")]),
    dp.Device("a", envs={"A=B": "1"}),
    dp.Device("a", cdi_names=["gpu0"]),
    dp.Device("a", topology=dp.Topology([-1])),
    dp.Device("a", resource="gpu"),
]


def test_the_devices_page_shows_what_is_said_of_a_skipped_device() -> None:
    shown = {row[1] for row in rows(ROOT / "common/docs/devices.md", "What is skipped")}
    said = [sort_out([device], "")[1] for device in SKIPPED]
    assert [1] * len(SKIPPED) == [len(problems) for problems in said]
    assert set() == {f"`{problem}`" for problems in said for problem in problems} - shown


def test_the_errors_page_draws_the_real_tree() -> None:
    (tree,) = [b.body for b in blocks(ROOT / "common/docs/plugins.md") if b.kind == "text"]
    drawn, above = {}, [(-1, "Exception")]
    for line in tree.splitlines():
        name = re.search(r"\w+", line)
        assert name
        while above[-1][0] >= name.start():
            above.pop()
        drawn[name[0]] = above[-1][1]
        above.append((name.start(), name[0]))
    real = {
        name: value.__mro__[1].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert real == drawn


def test_every_module_of_the_kit_has_a_section_and_a_row() -> None:
    modules = (ROOT / "common/node/src/deviceplugin/kit").glob("[!_]*")
    expected = sorted(path.stem for path in modules)
    listed = re.findall(r"^\| \[(\w+)\]\(([\w.-]*)#(\w+)\)", code(KIT), re.MULTILINE)
    assert [(name, name) for name in expected] == [(name, anchor) for name, _, anchor in listed]
    assert all(anchor in anchors(KIT.with_name(page or KIT.name)) for _, page, anchor in listed)


def test_every_page_is_on_the_map() -> None:
    mapped = set(_LINK.findall(code(ROOT / "common/node/README.md")))
    pages = {f"../docs/{path.name}" for path in (ROOT / "common/docs").glob("*.md")}
    assert set() == pages - mapped


@pytest.mark.parametrize("page", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(_BLOCK.sub("", code(page))):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            broken.append(link)
    assert [] == broken


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _BLOCK.sub("", code(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
