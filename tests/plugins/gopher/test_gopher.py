import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

import deviceplugin as dp
from deviceplugin_gopher import GopherPlugin, GopherSettings
from deviceplugin_testing.fixture import Kubelet

GOPHER = "example.com/gopher"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "gophers"
    path.mkdir()
    return path


@pytest.fixture
def plugin(directory: Path) -> GopherPlugin:
    return GopherPlugin(GopherSettings(directory=directory))


def fill(directory: Path, *names: str) -> None:
    for name in names:
        (directory / name).touch()


def skipped(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    for record in caplog.records:
        if "skipped" in record.getMessage():
            yield str(vars(record)["problem"]).removesuffix(": its name has a comma")


# Devices.


def test_every_file_and_link_to_one_is_a_gopher(plugin: GopherPlugin, directory: Path) -> None:
    names = {"fred", "wilma", ".hidden", "with blank", "é"}
    fill(directory, *names)
    (directory / "sub").mkdir()
    fill(directory / "sub", "barney")
    os.mkfifo(directory / "fifo")
    (directory / "link").symlink_to(directory / "fred")
    (directory / "dangling").symlink_to(directory / "none")
    assert names | {"link"} == {device.id for device in plugin.discover()}


def test_files_that_come_go_and_are_renamed_are_noticed(
    kubelet: Kubelet, plugin: GopherPlugin, directory: Path
) -> None:
    hour = dp.Settings().vanished_retention  # nothing but events can be this quick
    with kubelet.running(plugin, discovery_interval=hour, poll_interval=hour) as node:
        node.wait_for(GOPHER, ())
        assert [] == node.host.troubles()
        fill(directory, "fred", "wilma")
        node.wait_for(GOPHER, {"fred", "wilma"})
        (directory / "fred").unlink()
        node.wait_for(GOPHER, {"wilma"}, {"fred"})
        (directory / "wilma").rename(directory / "betty")
        node.wait_for(GOPHER, {"betty"}, {"fred", "wilma"})
        fill(directory, "fred")
        node.wait_for(GOPHER, {"betty", "fred"}, {"wilma"})


def test_a_link_that_cannot_be_followed_is_skipped_and_costs_no_other(
    plugin: GopherPlugin, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(directory, "fred")
    (directory / "loop").symlink_to("loop")
    (directory / "below").symlink_to("fred/file")
    for _ in range(2):
        assert [dp.Device("fred")] == list(plugin.discover())
    assert ["below: Not a directory", "loop: Too many levels of symbolic links"] == [
        *skipped(caplog)
    ]
    plugin.pre_start([dp.Device("fred")])
    with pytest.raises(dp.AllocationError, match=f"gone from {directory}: loop"):
        plugin.pre_start([dp.Device("loop")])


def test_a_missing_directory_is_waited_for(kubelet: Kubelet, tmp_path: Path) -> None:
    directory = tmp_path / "etc/gophers"
    hour = dp.Settings().vanished_retention
    plugin = GopherPlugin(GopherSettings(directory=directory))
    with kubelet.running(plugin, discovery_interval=hour, poll_interval=hour) as node:
        node.wait_for(GOPHER, ())
        directory.parent.mkdir()
        directory.mkdir()
        fill(directory, "fred")
        node.wait_for(GOPHER, {"fred"})
        (directory / "fred").unlink()
        directory.rmdir()
        node.wait_for(GOPHER, (), {"fred"})


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    plugin = GopherPlugin(GopherSettings(directory=tmp_path / "file"))
    with pytest.raises(dp.DiscoveryError, match="/file: Not a directory"):
        plugin.discover()


def test_names_that_cannot_be_ids_are_told_once_and_skipped(
    kubelet: Kubelet, plugin: GopherPlugin, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    undecodable = os.fsdecode(b"fred\xff")
    fill(directory, "fred", "a,b", "x" * 63, "y" * 64, " fred", "fred\n", undecodable)
    with kubelet.running(plugin) as node:
        node.wait_for(GOPHER, {"fred", "x" * 63})
        fill(directory, "wilma")
        node.wait_for(GOPHER, {"fred", "wilma", "x" * 63})
    blanks = "has control characters, unreadable bytes or blanks at an end"
    assert sorted(
        [
            "a,b",
            f"id {'y' * 64!r} has 64 characters, of at most 63",
            f"id ' fred' {blanks}",
            f"id 'fred\\n' {blanks}",
            f"id 'fred\\udcff' {blanks}",
        ]
    ) == sorted(skipped(caplog))


# What a container gets.


def test_a_container_finds_its_gophers_in_natural_order_while_they_are_there(
    kubelet: Kubelet, plugin: GopherPlugin, directory: Path
) -> None:
    names = ["g10", "g2", "g1"]
    fill(directory, *names)
    with kubelet.running(plugin) as node:
        node.wait_for(GOPHER, names)
        options = node.kubelet.options(GOPHER)
        assert options.get_preferred_allocation_available
        assert options.pre_start_required
        assert ["g1", "g2"] == sorted(node.prefer(names, 2))
        assert ["g1", "g10"] == sorted(node.prefer(names, 2, ["g10"]))
        assert dp.Allocation(envs={"Gopher": "g2,g10"}) == node.allocate("g10", "g2")
        node.pre_start("g1", "g2")
        (directory / "g1").unlink()
        with pytest.raises(grpc.RpcError, match=f"gone from {directory}: g1"):
            node.pre_start("g1", "g2")
        node.wait_for(GOPHER, {"g2", "g10"}, {"g1"})
        with pytest.raises(grpc.RpcError, match=r"unhealthy device: g1 \(it is gone\)"):
            node.allocate("g1", "g2")


# Settings.


def test_directory_resource_and_variable_can_be_set(directory: Path) -> None:
    plugin = GopherPlugin()
    assert (GOPHER, (Path("/etc/gophers"),)) == (plugin.resource, plugin.watch_paths)
    fill(directory, "g1")
    settings = GopherSettings(directory=directory, resource="x.io/marmot", variable="MARMOTS")
    plugin = GopherPlugin(settings)
    assert ("x.io/marmot", (directory,)) == (plugin.resource, plugin.watch_paths)
    assert {"MARMOTS": "g1"} == plugin.allocate(list(plugin.discover())).envs


@pytest.mark.parametrize("variable", ["", "A=B", "A\0"])
def test_a_variable_that_cannot_be_set_is_a_configuration_error(variable: str) -> None:
    with pytest.raises(dp.ConfigError) as raised:
        GopherPlugin(GopherSettings(variable=variable))
    assert f"variable {variable!r} cannot be the name of a variable" == str(raised.value)
