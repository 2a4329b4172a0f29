"""By which socket the kubelet reaches each plugin."""

import pytest

from deviceplugin._kubelet.server import is_socket_of
from homes.case import cases
from homes.home import Home, Plugin
from homes.simulated.home import SimulatedHome


@pytest.mark.parametrize(
    "plugin",
    [
        pytest.param(case.plugin, marks=getattr(pytest.mark, name), id=name)
        for name, case in cases().items()
        if name in {"gopher", "node"}  # the framework names sockets: of a plugin, and of several
    ],
)
def test_the_socket_that_the_kubelet_is_given_is_of_this_resource_and_start_alone(
    home: Home, plugin: Plugin
) -> None:
    """Another plugin, and another instance of the same one, cannot come to be behind it."""
    if not isinstance(home, SimulatedHome):
        pytest.skip("inspects a simulated kubelet")
    home.install(plugin)
    for name in ("gary", "gina") if plugin.files else ():
        home.add_file(name)
    resource, _ = home.offer(plugin)
    seen = set()
    for again in (home.restart_kubelet, home.restart_plugin, lambda: None):
        home.kubelet.wait(lambda: resource in home.kubelet.registered)
        path = home.kubelet.socket_of(resource)
        assert is_socket_of(resource, path.name)
        assert not path.is_symlink()
        seen.add(path.name)
        again()
    assert 3 == len(seen)
