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
from typing import Any, NamedTuple, cast
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
from deviceplugin._telemetry.metrics import Attribution, Metrics, Offered
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
        *("*.md", "operator/**/*.md", "deployments/*/README.md"),
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


def non_blank(text: str) -> int:
    return sum(bool(line.strip()) for line in text.splitlines())


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


def test_the_authors_plugin_has_at_most_15_lines() -> None:
    assert non_blank(code(AUTHORS_PLUGIN)) <= 15


def test_the_authors_test_has_at_most_8_lines() -> None:
    assert non_blank(code(AUTHORS_TEST)) <= 8


@pytest.mark.parametrize("source", [AUTHORS_PLUGIN, AUTHORS_TEST], ids=["plugin", "test"])
def test_the_readme_shows_the_template_as_it_is(source: Path) -> None:
    shown = [
        block.body for block in blocks(ROOT / "common/node/README.md") if block.kind == "python"
    ]
    assert code(source) in shown


def described(settings: type[dp.Settings], *, own: bool) -> list[list[str]]:
    common = {field.name for field in fields(dp.Settings)}
    texts = helps(settings)
    return [
        [
            f"`{loading.key(field)}`",
            f"`{values.write(field.default)}`",
            texts[loading.key(field)],
        ]
        for field in fields(settings)
        if not (own and field.name in common)
    ]


def test_the_settings_page_lists_the_settings_of_the_code() -> None:
    actual = rows(ROOT / "common/docs/settings.md", "All settings")
    assert described(dp.Settings, own=False) == actual


def test_the_gopher_page_lists_the_settings_of_the_code() -> None:
    assert described(GopherSettings, own=True) == rows(
        ROOT / "plugins/gopher/README.md", "Settings"
    )


def real_metrics() -> set[tuple[str, str, str]]:
    """Return name, type and labels of each metric as they appear on ``/metrics``."""
    metrics = Metrics()
    metrics.devices = lambda: [("example.com/a", 1, 0)]
    holders = {"d": [("example.com/a", "d", "default", "pod", "main")]}
    metrics.attribution = lambda: [Attribution("example.com/a", 1, 0, holders)]
    metrics.offered = lambda: [Offered("example.com/a", 1, 0, 0)]
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


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (
            "plugins",
            f"`hook-allocate`, one for each call | {service._ALLOCATE_TIMEOUT:g} s |",
        ),
        (
            "plugins",
            f"`hook-prefer`, one for each call | {service._PREFER_TIMEOUT:g} s |",
        ),
        (
            "plugins",
            f"`hook-pre_start`, one for each call | {PRE_START_TIMEOUT - 1:g} s |",
        ),
        ("plugins", f"a process that stops waits at most {host._STOP_TIMEOUT:g} s"),
        ("plugins", f"tried again after {endpoint._START_AGAIN:g} s"),
        ("plugins", f"called again after {triggers._LISTEN_AGAIN:g} s"),
        ("registration", f"is waited for, at most {host._STOP_TIMEOUT:g} s"),
        ("registration", f"a deadline of {by_kubelet_socket._REGISTER_TIMEOUT:g} s"),
        ("registration", f"a bound that doubles to {by_kubelet_socket._LONGEST_WAIT:g} s"),
        (
            "registration",
            f"from {endpoint._FIRST_WAIT / 2:g} s up to {endpoint._LONGEST_WAIT:g} s: two plugins",
        ),
        ("registration", f"no stream is opened for {endpoint._STREAM_TIMEOUT:g} s after"),
        ("registration", f"8 s and {endpoint._LONGEST_STREAM_TIMEOUT:g} s | a timeout"),
        ("registration", f"`{streams.MAX_STREAMS} streams are open already`"),
        ("discovery", f"a list of more than {MAX_LIST_BYTES // 1024**2} MiB"),
        ("discovery", f"more than {_found.MAX_DEVICES:,} devices"),
        ("discovery", f"a pause of {1000 * loop._REST:g} ms"),
        ("plugins", f"`hook-released`, one for each call | {releases._TIMEOUT:g} s |"),
        ("attribution", f"does not return within {releases._TIMEOUT:g} s"),
        ("attribution", f"every `pod-resources-interval` ({TIMING.interval:g} s)"),
        (
            "attribution",
            f"{TIMING.soon:g} s after an allocation; if more follow, {TIMING.at_last:g} s",
        ),
        ("attribution", f"with more than {poll_schedule._MOST_GETS} pods"),
        ("attribution", f"{TIMING.retry:g} s after a failure"),
        ("attribution", f"two polls, at least {TIMING.confirm:g} s apart"),
        ("attribution", f"has run for two intervals ({TIMING.settle:g} s)"),
        ("attribution", f"once it has been free for {TIMING.admission:g} s"),
        ("attribution", f"with a limit of {forgotten._TIMEOUT:g} s"),
        ("attribution", f"from 3 intervals ({TIMING.stale:g} s) after"),
        ("node-tools", f"has not been watching a resource for {_watch.SETTLE:g} s"),
        ("node-tools", f"which names {_notice.MOST_NAMED} of them"),
        ("node-tools", f"{_watch.BURST} Events in a row, then 1 a minute"),
        ("node-tools", f"after {_watch.FIRST_WAIT:g} s, doubled up to {_watch.LAST_WAIT:g} s"),
        ("node-tools", f"`Retry-After` is kept, up to {_errors.LONGEST_WAIT:g} s"),
        ("apiserver", f"up to {_errors.LONGEST_WAIT:g} s"),
        (
            "node-tools",
            f"For the last {'minute' if _evictor.CONFIRM == 60 else _evictor.CONFIRM} it",
        ),
        ("node-tools", f"every {_keeper.SHOWN:g} s while the node has yet to show"),
        ("node-tools", f"at pauses of up to {_keeper._LAST_WAIT:g} s while the plugin"),
        ("node-tools", f"and every {_keeper.AGAIN / 60:g} minutes otherwise"),
        ("node-tools", f"unhealthy for {_watch.OLD.total_seconds() / 60:g} minutes or more"),
        ("node-tools", f"At most {_watch.MAX_SUBJECTS:,} devices are watched"),
        ("node-tools", f"and {_devices_page.MAX_BYTES // 1024**2} MiB read of a plugin's answer"),
        ("fleet", f"the unhealthy first, {_page.MAX_DEVICES} in all"),
        ("fleet", f"those with problems first, {_page.MAX_RESOURCES} in all"),
        ("fleet", f"the last {events.MAX_EVENTS}, of this process"),
        ("discovery", f"at most every {retention._ASK_INTERVAL:g} s"),
        ("discovery", f"`{retention.VANISHED}`"),
        ("discovery", f"`{retention.HELD_BUT_ABSENT}`"),
        ("discovery", f"`{retention.RECORDED_BUT_ABSENT}`"),
        ("attribution", f"has more than {checkpoint.MAX_BYTES // 1024**2} MiB"),
        ("settings", f"at most {places.LONGEST // 1024**2} MiB, as a ConfigMap"),
        ("settings", f"and {nodes.MAX_NODES:,} keys and values"),
        ("settings", f"of its faults, the first {faults.MOST} are listed"),
        ("log-events", f"gets {events.AT_ONCE} lines at once"),
        ("log-events", f"one in {events.PAUSE / 60:g} minutes"),
        ("log-events", f"together {events.ALL_AT_ONCE} and then one in"),
        ("log-events", f"then one in {events.ALL_PAUSE:g} s"),
        ("dra", f"at most {len(str(quantities.TOO_LARGE - 1))} digits"),
        ("attribution", f"or {'a day' if TIMING.recorded == 86400 else ''} after its allocation"),
    ],
)
def test_limits_and_reasons_are_those_of_the_code(page: str, text: str) -> None:
    assert text in code(ROOT / f"common/docs/{page}.md")


def test_the_testing_page_names_every_method_of_a_node() -> None:
    section = code(ROOT / "common/docs/testing.md").partition("## Node\n")[2].partition("\n## ")[0]
    assert set(public(Node)) <= set(re.findall(r"`(\w+)\(", section))


def test_the_devices_page_lists_every_field_of_a_device() -> None:
    table = rows(ROOT / "common/docs/devices.md", "Devices")
    assert [f"`{field.name}`" for field in fields(dp.Device)] == [row[0] for row in table]


@pytest.mark.parametrize(
    "device",
    [
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
    ],
    ids=str,
)
def test_the_devices_page_shows_what_is_said_of_a_skipped_device(device: object) -> None:
    _, problems = sort_out(cast("list[dp.Device]", [device]), "")
    shown = [row[1] for row in rows(ROOT / "common/docs/devices.md", "What is skipped")]
    assert {f"`{problem}`" for problem in problems} <= set(shown)
    assert 1 == len(problems)


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
