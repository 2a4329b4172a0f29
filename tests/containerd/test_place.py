"""The plugin and pods of the end to end suite as containers, with a shell in the plugin's place."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containers import oci_image
from containers.containerd import Containerd
from deviceplugin_testing.simulator import RunOptions
from homes.home import Plugin
from homes.simulated.containerd_place import Containers
from homes.simulated.place import Installation
from patience import eventually

SAYS = "trap 'echo ended; exit 4' TERM; echo serving $DP_HTTP_ADDRESS $0; sleep 100 & wait"
IMAGE = "docker.io/library/gopher-device-plugin:0.1.0"
OPTIONS = RunOptions({"GIVEN": "x"}, (), (), {"example.com/note": "y"}, ())


@pytest.fixture
def place(containerd: Containerd, tmp_path: Path) -> Iterator[Containers]:
    program = oci_image.busybox()
    assert program is not None
    config = {"Env": [f"PATH={oci_image.PATH}"], "Entrypoint": ["sh", "-c", SAYS]}
    links = {f"bin/{name}": "/bin/busybox" for name in ("sh", "sleep", "env", "tr", "find", "cat")}
    archive = tmp_path / "gopher-device-plugin-0.1.0.tar"
    oci_image.write(archive, IMAGE, config, {"bin/busybox": program.read_bytes()}, links)
    made = Containers(tmp_path, containerd, tmp_path)
    yield made
    made.close()


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    own = {"name": "device-plugin", "image": "gopher-device-plugin:0.1.0", "args": ["--flag"]}
    first = {"name": "first", "image": own["image"], "command": ["sh", "-c", "echo first"]}
    spec = {"containers": [own], "initContainers": [first], "terminationGracePeriodSeconds": 5}
    daemon_set = {
        "kind": "DaemonSet",
        "metadata": {"name": "gopher"},
        "spec": {"template": {"metadata": {}, "spec": spec}},
    }
    plugin = Plugin("gopher", "example.com/gopher", 2)
    return Installation(plugin, [daemon_set], {}, "here:1", tmp_path / "plugin.log")


def pod(*command: str) -> dict[str, Any]:
    own = {"name": "main", "image": "busybox:1.37", "command": command}
    return {"metadata": {"name": "one"}, "spec": {"containers": [own]}}


def has_said(place: Containers, installation: Installation, text: str) -> bool:
    return place.is_alive() and text in installation.log.read_text()


def test_a_plugin_is_started_after_its_init_containers_and_ends_when_asked(
    place: Containers, installation: Installation, tmp_path: Path
) -> None:
    place.start(installation)
    eventually(lambda: has_said(place, installation, "serving here:1 --flag"))
    place.collect(tmp_path)
    (log,) = tmp_path.glob("*-first.log")
    assert "first\n" == log.read_text()
    assert 4 == place.terminate()
    assert "serving here:1 --flag\nended\n" == installation.log.read_text()
    assert not place.is_alive()


def test_a_plugin_that_is_killed_says_nothing_more(
    place: Containers, installation: Installation
) -> None:
    place.start(installation)
    eventually(lambda: has_said(place, installation, "serving"))
    place.kill()
    assert "serving here:1 --flag\n" == installation.log.read_text()
    place.start(installation)
    assert place.is_alive()


def test_what_fails_is_told_with_what_it_printed(place: Containers) -> None:
    with pytest.raises(AssertionError, match="no such thing"):
        place.run_to_end(pod("sh", "-c", "echo no such thing; exit 1"), OPTIONS)


def test_a_pod_sees_what_it_was_given_and_is_gone_when_it_is_deleted(place: Containers) -> None:
    given = place.run_pod(pod("sh", "-c", "sleep 100"), OPTIONS)
    assert "x" == given.envs["GIVEN"]
    assert {"example.com/note": "y"} == given.annotations
    assert place.is_running("one")
    assert "hello\n" == place.execute("one", "echo hello; false")
    place.delete("one")
    with pytest.raises(KeyError):
        place.is_running("one")


def test_logs_of_all_containers_are_collected(place: Containers, tmp_path: Path) -> None:
    place.run_to_end(pod("sh", "-c", "echo well done"), OPTIONS)
    folder = tmp_path / "logs"
    folder.mkdir()
    place.collect(folder)
    texts = {path.name.rpartition("-")[2]: path.read_text() for path in folder.iterdir()}
    assert "well done\n" == texts["main.log"]
    assert "level=info" in texts["containerd.log"]
