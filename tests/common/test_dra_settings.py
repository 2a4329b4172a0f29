"""The settings without which DRA cannot be used."""

from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._app.dra_settings import DraSettings, driver_name
from scripted_plugin import ScriptedPlugin


def plugins(*resources: str) -> list[ScriptedPlugin]:
    return [ScriptedPlugin(resource=resource) for resource in resources]


def settings(folder: Path, **more: object) -> dp.Settings:
    given: dict[str, object] = {
        "node_name": "n1",
        "registry_dir": folder,
        "driver_dir": folder,
        "cdi_dir": folder,
        "pod_resources_socket": folder / "kubelet.sock",
    }
    return dp.Settings(**given | more)  # type: ignore[arg-type]


def test_the_driver_is_called_as_is_set_or_after_the_only_resource() -> None:
    for resource, name in (
        ("nvidia.com/mig-1g.5gb", "mig-1g.5gb.nvidia.com"),
        ("example.com/My_Device", "my-device.example.com"),
    ):
        assert name == driver_name(dp.Settings(), plugins(resource))
    given = dp.Settings(driver_name="gophers.example.com")
    assert "gophers.example.com" == driver_name(given, plugins("", "x.io/a"))


SEVERAL = (
    "its plugins name no or several resources: its service account has the annotation "
    "deviceplugin.dev/driver, with the one that it may use"
)


@pytest.mark.parametrize(
    ("resources", "why"),
    [
        ([""], f"{SEVERAL}$"),
        (["x.io/a", "x.io/b"], f"{SEVERAL}$"),
        (["x.io/a", ""], f"{SEVERAL}$"),
        ([f"example.com/{'a' * 60}"], "'aaa.* is not the"),
    ],
)
def test_a_driver_of_no_or_several_or_long_resources_needs_a_name(
    resources: list[str], why: str
) -> None:
    with pytest.raises(dp.ConfigError, match=f"^driver-name is needed, because {why}"):
        driver_name(dp.Settings(), plugins(*resources))


def test_all_that_dra_needs_is_there(tmp_path: Path) -> None:
    expected = DraSettings("a.x.io", "n1", tmp_path / "a.x.io")
    assert expected == DraSettings.of(settings(tmp_path), plugins("x.io/a"))


def test_all_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    gone, long = tmp_path / "gone", Path("/" + "x" * 300)
    given = settings(
        gone, node_name="", driver_dir=tmp_path, cdi_dir=long, pod_resources_socket=gone / "k.sock"
    )
    with pytest.raises(dp.ConfigError) as raised:
        DraSettings.of(given, plugins(""))
    assert [
        "protocol dra: node-name is needed, in a pod spec.nodeName",
        f"protocol dra: registry-dir: {gone}: no such directory",
        f"protocol dra: cdi-dir: {long}: File name too long",
        f"protocol dra: the directory of pod-resources-socket: {gone}: no such directory",
        f"protocol dra: driver-name is needed, because {SEVERAL}",
    ] == str(raised.value).splitlines()
