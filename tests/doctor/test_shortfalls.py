"""What the doctor makes of what a running plugin reports of itself, and of the kubelet's answer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deviceplugin._config.settings import Settings
from deviceplugin.checks import Node
from deviceplugin.tools import _devices_page
from deviceplugin.tools.doctor.checks import _directories, _plugin
from deviceplugin.tools.doctor.checks._kubelet import healthy_devices
from deviceplugin_testing.fixture import Kubelet
from deviceplugin_testing.simulator import SimulatedKubelet, StubPlugin
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin


@contextmanager
def answering(*shortfalls: str, invalid: Sequence[str] = ()) -> Iterator[Node]:
    """Yield this machine, on which a plugin serves HTTP."""
    plugin = ScriptedPlugin("a")
    plugin.shortfalls, plugin.invalid_entries = shortfalls, invalid
    with (
        TemporaryDirectory(prefix="dp") as root,
        Kubelet(Path(root)) as kubelet,
        kubelet.running(plugin, http_address="127.0.0.1:0") as node,
    ):
        node.wait_for(RESOURCE, {"a"})
        node.host.fixed_files[:] = ["c.yaml is mounted by subPath"] if invalid else []
        port = eventually(lambda: node.host.http_port, "the port")
        settings = replace(kubelet.settings(), http_address=f"127.0.0.1:{port}")
        yield Node(root=Path("/"), settings=settings, timeout=PATIENCE)


def found(node: Node) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.found) for one in _plugin.shortfalls(node)]


def test_what_a_running_plugin_should_offer_and_does_not_is_a_warning() -> None:
    with answering("card 1 has no driver", "shares of b match nothing") as node:
        port = node.settings.http_address.partition(":")[2]
        for host in ("127.0.0.1", "", "0.0.0.0"):
            settings = Settings(http_address=f"{host}:{port}")
            assert [
                ("warning", "ScriptedPlugin: card 1 has no driver"),
                ("warning", "ScriptedPlugin: shares of b match nothing"),
            ] == found(replace(node, settings=settings))


def test_an_entry_that_is_skipped_and_a_file_that_is_never_updated_are_found() -> None:
    with answering(invalid=["'x': c.yaml:2: y"]) as node:
        assert [
            ("failure", "invalid entry: ScriptedPlugin: 'x': c.yaml:2: y"),
            ("warning", "c.yaml is mounted by subPath"),
        ] == found(node)


def test_a_plugin_that_offers_all_is_ok_and_elsewhere_nobody_is_asked() -> None:
    with answering() as node:
        assert [("ok", "the plugin offers all that it should")] == found(node)
    assert [("ok", "no plugin answers here")] == found(node)
    for other in (replace(node, root=Path("/tmp")), Node(root=node.root, settings=OFF)):
        ((verdict, text),) = found(other)
        assert ("ok", True) == (verdict, text.startswith("is asked only where it runs"))


OFF = Settings(http_address="off")


@pytest.mark.parametrize(
    "answer",
    [
        *(b"", b"[]", b"{", b"7", b'{"shortfalls": 7}', b'{"shortfalls": null}', b"[" * 10**5),
        *(b'{"fixed_files": 1}', b'{"invalid_entries": [1]}', b'{"invalid_entries": {"a": 1}}'),
    ],
)
def test_an_answer_that_makes_no_sense_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    def fetch(*_: object) -> bytes:
        return answer

    monkeypatch.setattr(_devices_page, "fetch", fetch)
    node = Node(root=Path("/"), settings=Settings(http_address=":1"))
    assert {"ok"} >= {verdict for verdict, _ in found(node)}


def registered(node: Node) -> list[tuple[str, str]]:
    return [(one.verdict.value, one.found) for one in _plugin.registrations(node)]


ALL = ("ok", "the kubelet has what the plugin offers, as far as is visible")


def test_a_kubelet_that_has_what_the_plugin_offers_is_ok() -> None:
    with answering() as node:
        assert [ALL] == registered(node)
        unseen = replace(node.settings, pod_resources_socket=Path("/no/such"))
        assert [ALL] == registered(replace(node, settings=unseen))
    assert [("ok", "no plugin answers here")] == registered(node)


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (["y"], "the kubelet has y, which this plugin does not list"),
        (["a", "y", "z"], "the kubelet has y and 1 more, which this plugin does not list"),
    ],
)
def test_devices_that_the_kubelet_has_of_somebody_else_show_a_rival(
    theirs: list[str], text: str
) -> None:
    with answering() as node, StubPlugin(node.plugin_dir, RESOURCE, theirs) as rival:
        eventually(lambda: theirs[-1] in (healthy_devices(node) or {})[RESOURCE], "their list")
        assert [("failure", text)] == registered(node)
        assert rival.streams


def test_a_plugin_that_is_registered_with_another_kubelet_is_named() -> None:
    with (
        answering() as node,
        TemporaryDirectory(prefix="dp") as elsewhere,
        SimulatedKubelet(Path(elsewhere)) as other,
    ):
        settings = replace(node.settings, pod_resources_socket=other.pod_resources_socket)
        assert [
            ("failure", "the kubelet has none of the 1 healthy devices of this plugin")
        ] == registered(replace(node, settings=settings))


def test_a_plugin_whose_directory_is_gone_says_so_although_it_could_be_found_in_another() -> None:
    with TemporaryDirectory(prefix="dp") as root, Kubelet(Path(root)) as kubelet:
        gone: dict[str, object] = {"plugin_dir": Path(root, "gone"), "registration": "self"}
        with kubelet.running(ScriptedPlugin("a"), http_address="127.0.0.1:0", **gone) as node:
            port = eventually(lambda: node.host.http_port, "the port")
            settings = Settings(
                http_address=f"127.0.0.1:{port}",
                plugin_dir=Path(root, "gone"),
                registry_dir=kubelet.simulated.registry_dir,
                registration="self",
            )
            here = Node(root=Path("/"), settings=settings, timeout=PATIENCE)
            said = "is not registered: cannot serve: "
            eventually(lambda: registered(here)[0][1].startswith(said), "the reason")
            assert ["failure"] == [one.verdict for one in _directories.directory(here)]


def test_what_is_held_and_for_how_long_is_said_and_a_day_is_a_warning() -> None:
    plugin = ScriptedPlugin("a", "b")
    with (
        TemporaryDirectory(prefix="dp") as root,
        Kubelet(Path(root)) as kubelet,
        kubelet.running(plugin, http_address="127.0.0.1:0") as running,
    ):
        running.wait_for(RESOURCE, {"a", "b"})
        port = eventually(lambda: running.host.http_port, "the port")
        settings = replace(kubelet.settings(), http_address=f"127.0.0.1:{port}")
        node = Node(root=Path("/"), settings=settings, timeout=PATIENCE, wall=lambda: now[0])
        now = [0.0]
        assert ["nothing is held"] == [one.found for one in _plugin.holds(node)]
        (held,) = running.host.ask_hold({"do": "hold", "device": "a", "reason": "hot"})["holds"]
        for days, expected in ((0.5, "ok"), (2, "warning")):
            now[0] = held["since"] + days * 86400
            said = eventually(lambda: [one for one in _plugin.holds(node) if "hot" in one.found])
            assert [(expected, "a")] == [(one.verdict.value, one.looked_at) for one in said]
        folder = next((kubelet.simulated.plugin_dir / ".holds").iterdir())
        with kubelet.running(ScriptedPlugin(resource="a.b/c"), http_address="127.0.0.1:0") as other:
            own = replace(settings, http_address=f"127.0.0.1:{other.host.http_port}")
            (found,) = _plugin.holds(replace(node, settings=own))
            said_of = f"holds: {folder}: another process has it: give each its own instance"
            said_of += ", unless it ends soon"
            assert ("warning", said_of) == (found.verdict.value, found.found)
    ((verdict, text),) = [(one.verdict.value, one.found) for one in _plugin.holds(node)]
    assert ("ok", "no plugin answers here") == (verdict, text)
