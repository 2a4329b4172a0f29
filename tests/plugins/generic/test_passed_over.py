"""Directories below /dev that runtimes pass over, and links that lead there or out of /dev."""

from pathlib import Path

import pytest

from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.globs import PASSED_OVER
from discovered import reasons
from generic.plugin import Make
from hardware.tree import Hardware

NOT_THE_KERNELS = "where runtimes look for no devices: what is there is not the kernel's"


def entry(path: object, more: str = "") -> str:
    return f"{{name: ab, id: serial, groups: [{{paths: [{{path: '{path}'{more}}}]}}]}}"


def of_rules(hardware: Hardware, file: Path, pattern: str) -> GenericPlugin:
    file.write_text(f"- {{devicematch: '{pattern}', nummaxdevices: 1}}\n")
    roots = Roots(hardware.dev, hardware.sys, hardware.udev)
    return GenericPlugin(GenericSettings.of_file(file), roots)


@pytest.mark.parametrize("folder", sorted(PASSED_OVER))
@pytest.mark.parametrize("above", ["", "bus/"])
def test_patterns_and_rules_pass_over_what_runtimes_pass_over(
    make: Make, hardware: Hardware, tmp_path: Path, above: str, folder: str
) -> None:
    for name in ("ttyUSB7", f"{above}{folder}/ttyUSB7", f"{above}x/ttyUSB7"):
        hardware.node(name)
    patterns = [f"{above}*/ttyUSB*", f"{above}*/ttyUSB7", f"{above}{folder}*/*", f"{above}*"]
    entries = [entry(hardware.dev / pattern).replace("ab", f"a{n}") for n, pattern in
               enumerate(patterns)]  # fmt: skip
    plugin = make(*entries)
    found = {node.host_path for device in plugin.discover() for node in device.nodes}
    assert {f"{hardware.dev}/{above}x", f"{hardware.dev}/{above}x/ttyUSB7"} == {
        path for path in found if path.startswith(f"{hardware.dev}/{above}x")
    }
    assert [] == [path for path in found if folder in path.split("/")]
    assert {f"{hardware.dev}/{above}x", str(hardware.dev / above)} <= {
        str(path) for path in plugin.watch_paths
    }
    assert not any(folder in Path(path).parts for path in plugin.watch_paths)
    rules = of_rules(hardware, tmp_path / "rules.yaml", "ttyUSB[0-9]+")
    prefix = above.replace("/", "_")
    assert {"smarter-devices/ttyUSB7", f"smarter-devices/{prefix}x_ttyUSB7"} == {
        device.resource for device in rules.discover()
    }


def test_a_directory_of_a_rule_has_no_node_of_theirs(hardware: Hardware, tmp_path: Path) -> None:
    for name in ("snd/timer", "snd/shm/timer"):
        hardware.node(name)
    (device,) = of_rules(hardware, tmp_path / "rules.yaml", "^snd$").discover()
    assert ["/dev/snd/timer"] == [node.container_path for node in device.nodes]


def test_such_names_mean_nothing_elsewhere(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data/shm/fd").mkdir(parents=True)
    (device,) = make(entry(f"{tmp_path}/data/*/f*", ", type: Mount")).discover()
    assert [f"{tmp_path}/data/shm/fd"] == [mount.host_path for mount in device.mounts]


def test_a_file_there_is_mounted_if_it_is_named(make: Make) -> None:
    (device,) = make(entry("/dev/shm", ", type: Mount")).discover()
    assert (True, ["/dev/shm"]) == (bool(device.health), [one.host_path for one in device.mounts])


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("shm/x", "leads through {dev}/shm, " + NOT_THE_KERNELS),
        ("bus/fd/x", "leads through {dev}/bus/fd, " + NOT_THE_KERNELS),
        ("../outside", "leads to {outside}, which is not below {dev}"),
        ("bus/x", ""),
        ("loop", "leads through {dev}/shm, " + NOT_THE_KERNELS),
    ],
)
@pytest.mark.parametrize("by", ["name", "pattern", "rule"])
def test_a_link_to_what_is_not_the_kernels_is_unhealthy(
    make: Make, hardware: Hardware, tmp_path: Path, target: str, reason: str, by: str
) -> None:
    for name in ("bus/x", "bus/fd/x", "shm/x"):
        hardware.node(name)
        (hardware.dev / name).unlink()
        (hardware.dev / name).touch()
    outside = hardware.dev.parent / "outside"
    outside.touch()
    (hardware.dev / "loop").symlink_to("shm/x")
    link = hardware.dev / "link0"
    link.symlink_to(target)
    plugin = (
        of_rules(hardware, tmp_path / "rules.yaml", "^link")
        if by == "rule"
        else make(entry(link if by == "name" else f"{hardware.dev}/link*"))
    )
    expected = reason.format(dev=hardware.dev, outside=outside)
    plain = {} if by == "rule" else {"ab-link0": f"{link}: not a device node"}
    name = "link0-0" if by == "rule" else "ab-link0"
    assert ({name: f"{link}: {expected}"} if expected else plain) == reasons(plugin)


def test_a_link_that_passes_through_there_is_unhealthy_wherever_it_leads(
    make: Make, hardware: Hardware, tmp_path: Path
) -> None:
    hardware.node("shm/x/data")  # a link to /dev/null
    (hardware.dev / "link0").symlink_to("shm/x")
    (hardware.dev / "out0").symlink_to(tmp_path / "out")
    (tmp_path / "out").symlink_to("/dev/null")
    (hardware.dev / "loop0").symlink_to("loop0")
    plugin = make(
        entry(f"{hardware.dev}/link*/data", ", type: Mount"),
        entry(f"{hardware.dev}/out*").replace("ab", "cd"),
        entry(f"{hardware.dev}/loop*").replace("ab", "ef"),
    )
    dev = hardware.dev
    assert {
        f"{dev}/link0/data: leads through {dev}/shm, {NOT_THE_KERNELS}",
        f"{dev}/out0: leads to {tmp_path}/out, which is not below {dev}",
        f"{dev}/loop0: Too many levels of symbolic links",
    } == set(reasons(plugin).values())
