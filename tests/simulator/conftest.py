from collections.abc import Iterator
from pathlib import Path

import pytest

from deviceplugin_testing.simulator import Behaviour, KubeletConfig
from deviceplugin_testing.simulator._plugin_watcher import watcher
from kubelets.equipped import Kubelet
from patience import PATIENCE


@pytest.fixture
def behaviour() -> Behaviour:
    """What ``kubelet`` does; tests parametrise it."""
    return Behaviour.v1_36()


@pytest.fixture
def config() -> KubeletConfig:
    """How ``kubelet`` is configured; tests parametrise it."""
    return KubeletConfig(watch_interval=None, sync_interval=None)


@pytest.fixture
def dial_timeout() -> float:
    """How long ``kubelet`` dials; tests that wait for the end of it parametrise it."""
    return 10.0


@pytest.fixture
def info_timeout() -> float | None:
    """How long ``kubelet`` waits for what a plugin says of itself: here as long as is needed.

    Tests of the second that a kubelet waits parametrise it.
    """
    return PATIENCE


@pytest.fixture
def kubelet(
    root: Path,
    behaviour: Behaviour,
    config: KubeletConfig,
    dial_timeout: float,
    info_timeout: float | None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Kubelet]:
    monkeypatch.setattr(watcher, "GET_INFO_TIMEOUT", info_timeout)
    with Kubelet(root, dial_timeout=dial_timeout, behaviour=behaviour, config=config) as kubelet:
        yield kubelet
