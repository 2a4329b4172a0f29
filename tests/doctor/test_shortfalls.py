"""What the doctor makes of what a running plugin reports of itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deviceplugin._config.settings import Settings
from deviceplugin.checks import Node
from deviceplugin.tools import _devices_page
from deviceplugin.tools.doctor.checks import _plugin
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually
from scripted_plugin import RESOURCE, ScriptedPlugin


@contextmanager
def answering(*shortfalls: str) -> Iterator[Node]:
    """Yield this machine, on which a plugin serves HTTP."""
    plugin = ScriptedPlugin("a")
    plugin.shortfalls = shortfalls
    with (
        TemporaryDirectory(prefix="dp") as root,
        Kubelet(Path(root)) as kubelet,
        kubelet.running(plugin, http_address="127.0.0.1:0") as node,
    ):
        node.wait_for(RESOURCE, {"a"})
        port = eventually(lambda: node.host.http_port, "the port")
        settings = Settings(http_address=f"127.0.0.1:{port}")
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


def test_a_plugin_that_offers_all_is_ok_and_elsewhere_nobody_is_asked() -> None:
    with answering() as node:
        assert [("ok", "the plugin offers all that it should")] == found(node)
    assert [("ok", "no plugin answers here")] == found(node)
    for other in (replace(node, root=Path("/tmp")), Node(root=node.root, settings=OFF)):
        ((verdict, text),) = found(other)
        assert ("ok", True) == (verdict, text.startswith("is asked only where it runs"))


OFF = Settings(http_address="off")


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{", b"7", b'{"shortfalls": 7}', b'{"shortfalls": null}', b"[" * 10**5]
)
def test_an_answer_that_makes_no_sense_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    def fetch(*_: object) -> bytes:
        return answer

    monkeypatch.setattr(_devices_page, "fetch", fetch)
    node = Node(root=Path("/"), settings=Settings(http_address=":1"))
    assert {"ok"} >= {verdict for verdict, _ in found(node)}
