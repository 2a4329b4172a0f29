"""Sockets of the kubelet that another mount hides on the host, and those that are just not used."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deviceplugin._app.covered_sockets import CoveredSockets
from held_clock import HeldClock


class Kubelet:
    """Sockets of a kubelet that can end without removing them, and time."""

    def __init__(self, directory: Path) -> None:
        self.paths = [directory / "kubelet.sock", directory / "pod-resources.sock"]
        self.clock = HeldClock()
        self.covered = CoveredSockets(self.paths, self.clock)
        self.listening: list[socket.socket] = []

    def start(self) -> None:
        for path in self.paths:
            path.unlink(missing_ok=True)
            self.listening.append(socket.socket(socket.AF_UNIX))
            self.listening[-1].bind(str(path))
            self.listening[-1].listen(64)

    def end(self) -> None:
        for one in self.listening:
            one.close()
        self.listening = []

    def after(self, seconds: float, *, probed: bool = False, connected: bool = False) -> list[Path]:
        self.clock.advance(seconds)
        if probed:
            self.covered.probed()
        return sorted(self.covered.check(connected=connected))


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    with TemporaryDirectory(prefix="dp") as path:
        found = Kubelet(Path(path))
        found.start()
        assert [] == found.after(0, connected=True)
        found.end()
        yield found
        found.end()


def test_a_kubelet_that_probes_and_does_not_listen_looks_elsewhere(kubelet: Kubelet) -> None:
    assert [] == kubelet.after(15)
    assert [] == kubelet.after(15, probed=True)
    assert kubelet.paths == kubelet.after(15, probed=True)
    assert kubelet.paths == kubelet.after(15)


def test_a_kubelet_that_is_down_for_an_hour_hides_nothing(kubelet: Kubelet) -> None:
    assert [] == kubelet.after(1, probed=True)  # sent just before its end
    assert [[]] * 240 == [kubelet.after(15) for _ in range(240)]
    kubelet.start()
    assert [] == kubelet.after(1, probed=True)
    assert [] == kubelet.after(15, probed=True)


def test_a_kubelet_that_ends_again_and_again_hides_nothing(kubelet: Kubelet) -> None:
    for _ in range(10):
        assert [] == kubelet.after(15)
        kubelet.start()
        kubelet.covered.probed()
        kubelet.end()


def test_a_kubelet_that_watches_us_hides_nothing(kubelet: Kubelet) -> None:
    assert [] == kubelet.after(15)
    assert [] == kubelet.after(60, probed=True, connected=True)
    assert [] == kubelet.after(15, probed=True)


def test_a_socket_that_no_kubelet_has_used_is_nobodys(kubelet: Kubelet) -> None:
    stranger = CoveredSockets(kubelet.paths, kubelet.clock)
    stranger.check(connected=False)
    kubelet.clock.advance(60)
    stranger.probed()
    assert [] == list(stranger.check(connected=False))


def test_a_socket_that_is_gone_is_not_hidden(kubelet: Kubelet) -> None:
    kubelet.after(15)
    kubelet.paths[0].unlink()
    assert [kubelet.paths[1]] == kubelet.after(60, probed=True)


def test_what_cannot_be_tried_proves_nothing(tmp_path: Path) -> None:
    odd = tmp_path / ("x" * 200)  # too long for a socket
    covered = CoveredSockets([odd], HeldClock())
    assert [] == list(covered.check(connected=True))
    covered._used.add(odd)
    with closing(odd.open("w")):
        assert [] == list(covered.check(connected=False))
