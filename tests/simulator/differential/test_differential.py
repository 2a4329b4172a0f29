"""The simulated kubelet beside a real one: random histories must look the same."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from deviceplugin.proto.v1beta1 import deviceplugin_pb2 as pb
from deviceplugin_testing.simulator import COMPARED, Behaviour, KubeletConfig, Pod, StubError
from deviceplugin_testing.simulator._host.release import Release
from kubelets.chance import Chance
from kubelets.comparison import DifferenceError
from kubelets.history import History
from kubelets.real_kubelet import CannotBuildError, RealKubelet, build
from kubelets.simulated_kubelet import Simulated
from kubelets.twin import Kubelet, Twin

SEEDS: Final = range(*map(int, os.environ.get("DIFFERENTIAL_SEEDS", "0:30").split(":")))
LENGTH: Final = 60

R: Final = "x.io/one"
VERSION: Final = os.environ.get("K8S_VERSION", COMPARED)
"""The release of the sources."""
KNOWN: Final = Behaviour.of(Release.of(VERSION))
"""What the real kubelet does."""

Other = Callable[[Path, KubeletConfig], Kubelet]
Both = Callable[[Callable[[Twin], Any]], list[Any]]


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parts of a real kubelet, as a program."""
    try:
        return build(tmp_path_factory.mktemp("driver"))
    except CannotBuildError as error:
        pytest.skip(str(error))


def live(seeds: range, other: Other) -> None:
    """Live through the history of each seed beside ``other``; a difference tells all of it."""
    for seed in seeds:
        _live(seed, other)


def _live(seed: int, other: Other) -> None:
    with ExitStack() as stack:
        chance = Chance(seed)
        config = replace(chance.config(), version=VERSION)
        history = History(chance, twins(stack, config, other))
        try:
            history.live(LENGTH)
        except Exception as error:
            error.add_note("\n".join([f"DIFFERENTIAL_SEEDS={seed}:{seed + 1}", f"{config}"]))
            error.add_note("\n".join(history.told))
            raise


def twins(stack: ExitStack, config: KubeletConfig, other: Other) -> tuple[Twin, Twin]:
    """Return a simulated kubelet and ``other``, which end with ``stack``."""
    root = Path(tempfile.mkdtemp(prefix="dp"))
    stack.callback(shutil.rmtree, root)
    simulated = Simulated(root / "s", config, KNOWN)
    both = (
        Twin("simulated", simulated, root / "s" / "device-plugins"),
        Twin("other", other(root / "r", config), root / "r" / "device-plugins"),
    )
    for twin in both:
        stack.callback(twin.close)
    return both


@pytest.mark.timeout(3600)  # building the driver takes minutes where nothing of it is cached
def test_random_histories_look_the_same_on_a_real_kubelet(driver: Path) -> None:
    live(SEEDS, lambda root, config: RealKubelet(driver, root, config))


def test_random_histories_look_the_same_on_the_same_kubelet() -> None:
    live(range(2), lambda root, config: Simulated(root, config, KNOWN))


def test_random_histories_find_a_defect_that_one_kubelet_does_not_have() -> None:
    other = replace(KNOWN, failed_allocation_leaks=False)
    with pytest.raises(DifferenceError, match="allocated differ"):
        live(range(30), lambda root, config: Simulated(root, config, other))


@pytest.fixture
def both(driver: Path) -> Iterator[Both]:
    """Does something to a simulated and to a real kubelet, and returns what came of it."""
    with ExitStack() as stack:
        config = KubeletConfig(version=VERSION, watch_interval=None)
        pair = twins(stack, config, lambda root, config: RealKubelet(driver, root, config))
        for twin in pair:
            twin.kubelet.start([], [])
        yield lambda act: [twin.plain(act(twin)) for twin in pair]


def admitted(twin: Twin) -> Any:
    """Return what becomes of a pod that wants a device."""
    return twin.kubelet.admit(Pod.of("p", main={R: 1}))


def unnoticed(twin: Twin) -> Path:
    """Have a plugin stop unnoticed, and return where its socket was."""
    socket_of_mine = twin.add(1, R, [pb.Device(ID="a", health="Healthy")]).socket
    assert not twin.register(1)
    twin.add(2, R, []).failing["GetDevicePluginOptions"] = StubError("no")
    assert twin.register(2)
    twin.remove(1)
    return socket_of_mine


def nothing(_path: Path) -> None:
    """Leave the socket missing."""


def left_behind(path: Path) -> None:
    """Leave a socket that nobody listens on."""
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))


@pytest.mark.skipif(
    not KNOWN.failed_registration_orphans, reason="no kubelet from 1.37 on calls a dead socket"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("leave", [nothing, left_behind, Path.touch, Path.mkdir])
def test_the_words_about_a_dead_socket_are_the_same(
    both: Both, leave: Callable[[Path], None]
) -> None:
    def act(twin: Twin) -> Any:
        leave(unnoticed(twin))
        return admitted(twin)

    simulated, real = both(act)
    assert real == simulated
    assert "connect: " in real[1]


@pytest.mark.timeout(3600)
def test_a_socket_that_is_connected_registers_again_alike(both: Both) -> None:
    def act(twin: Twin) -> Any:
        twin.add(1, R, [pb.Device(ID="a", health="Healthy")])
        return [twin.register(1), twin.register(1), admitted(twin)]

    simulated, real = both(act)
    assert real == simulated


class Raw:
    """An answer of these bytes, be they an answer or not."""

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """Return the bytes."""
        return self._encoded


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "encoded",
    [
        pytest.param(b"\xff\xff", id="garbage"),
        pytest.param(b"\x0a\x05\x0a", id="short"),
        pytest.param(b"\x0a\x80\x89\x7a" + bytes(2_000_000), id="large"),
        pytest.param(bytes(5_000_000), id="too large"),
        pytest.param(b"", id="empty"),
    ],
)
def test_the_words_about_an_odd_answer_are_the_same(both: Both, encoded: bytes) -> None:
    def act(twin: Twin) -> Any:
        answer: Any = Raw(encoded)
        twin.add(1, R, [pb.Device(ID="a", health="Healthy")]).on_allocate = lambda _: answer
        assert not twin.register(1)
        return admitted(twin)

    simulated, real = both(act)
    assert real == simulated
