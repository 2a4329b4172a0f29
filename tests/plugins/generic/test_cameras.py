"""Cameras, which are asked what they can do by whoever may open them."""

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from deviceplugin_generic import GenericPlugin, GenericSettings
from deviceplugin_generic.configuration.entries import ABILITIES
from deviceplugin_generic.configuration.loading import Devices
from deviceplugin_generic.discovery.cache import Cache
from deviceplugin_generic.discovery.cameras import AGAIN, Cameras, ask
from deviceplugin_generic.discovery.tree import Tree
from discovered import found
from generic.cameras import CAPTURE, M2M, METADATA, OUTPUT, TOUCH, Video, add_node
from generic.plugin import Machine

NODE = "{name: cam, groups: [{select: {subsystem: video4linux, can: capture}}]}"
BEHIND = "{name: cam, groups: [{select: {subsystem: usb, name: 1-4}, nodes: [{subsystem: %s}]}]}"
USB = "{name: cam, groups: [{usb: [{vendor: 046d, product: '0825'}], nodes: [{subsystem: %s}]}]}"
UNKNOWN = "unknown what it can do, so that every entry has it: "
BOTH = {"cam-C1:1.0.0": ["video0"], "cam-C1:1.0.1": ["video1"]}


@pytest.fixture
def video(monkeypatch: pytest.MonkeyPatch) -> Video:
    return Video(monkeypatch)


@pytest.fixture
def webcam(machine: Machine) -> str:
    """A camera with a node for pictures and one for metadata."""
    usb = machine.usb("1-4", "046d:0825", 4, serial="C1")
    add_node(machine, usb, "video0", "null")
    add_node(machine, usb, "video1", "zero")
    return usb


@pytest.fixture
def release() -> Iterator[Event]:
    """What a camera that hangs waits for."""
    event = Event()
    yield event
    event.set()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def with_cameras(machine: Machine, cameras: Cameras, entry: str = NODE) -> GenericPlugin:
    cache = Cache()
    cache.cameras = cameras
    return GenericPlugin(GenericSettings(device=Devices.parse(entry)), machine.roots, cache=cache)


def nodes(plugin: GenericPlugin) -> dict[str, list[str]]:
    return {
        name: [Path(node.host_path).name for node in device.nodes]
        for name, device in found(plugin).items()
    }


def finish(name: str) -> None:
    """Wait until a node has answered."""
    for thread in threading.enumerate():
        if thread.name == f"camera {name}":
            thread.join()


@pytest.mark.parametrize("entry", [BEHIND, USB])
def test_a_camera_is_one_device_with_the_node_that_delivers_pictures(
    machine: Machine, video: Video, webcam: str, entry: str
) -> None:
    video.answer("null", CAPTURE, "YUYV", "MJPG", "XXXX")
    video.answer("zero", METADATA, "UVCH")
    plugin = machine.plugin(entry % "video4linux, can: [capture, mjpeg]")
    assert [["video0"]] == [*nodes(plugin).values()]
    assert ["capture,mjpeg,yuyv"] == [one.attributes["can"] for one in plugin.discover()]
    assert {} == nodes(machine.plugin(entry % "video4linux, can: h264"))
    assert ([], ["null", "zero"]) == (plugin.shortfalls, video.asked[:2])
    machine.unplug(webcam)
    assert {} == nodes(plugin)


@pytest.mark.usefixtures("webcam")
def test_a_pattern_of_paths_has_the_cameras_only(machine: Machine, video: Video) -> None:
    video.answer("null", CAPTURE, "MJPG")
    (machine.dev / "video2").write_text("")
    path = f"{{path: '{machine.dev}/video*', can: capture}}"
    plugin = machine.plugin(f"{{name: cam, groups: [{{paths: [{path}]}}]}}")
    assert [["video0"], ["video2"]] == sorted(nodes(plugin).values())
    assert [f"{machine.dev}/video2: {UNKNOWN}sysfs does not say it"] == plugin.shortfalls


@pytest.mark.parametrize(
    ("caps", "formats", "expected"),
    [
        (CAPTURE, ["MJPG"], {"capture", "mjpeg"}),
        (CAPTURE, [], set()),  # as v4l2loopback before anybody writes
        (CAPTURE | OUTPUT, ["YUYV"], {"capture", "output", "yuyv"}),
        (OUTPUT, ["NV12"], {"output", "nv12"}),
        (M2M, ["H264", "NV12"], {"codec", "h264", "nv12"}),
        (METADATA, ["UVCH"], set()),
        (CAPTURE | TOUCH, ["TD08"], set()),
        (CAPTURE, ["MJPG", *["../x"] * 100], {"capture", "mjpeg"}),
    ],
)
def test_a_node_can_do_what_its_own_capabilities_and_formats_say(
    video: Video, caps: int, formats: list[str], expected: set[str]
) -> None:
    video.answer("null", caps, *formats)
    assert expected == ask("/dev/null", os.makedev(1, 3))


@pytest.mark.usefixtures("webcam")
def test_another_file_is_not_opened_and_what_does_not_know_the_question_is_unknown(
    machine: Machine,
) -> None:
    """As when the camera has gone since it was seen, and something has its name; and as on PowerPC
    and MIPS, where ioctls have other numbers: /dev/zero knows none."""
    (machine.dev / "video0").unlink()
    os.mkfifo(machine.dev / "video0")
    plugin = machine.plugin(NODE)
    assert BOTH == nodes(plugin)
    whys = ("No such device", "Inappropriate ioctl for device")
    assert [
        f"{machine.dev}/video{number}: {UNKNOWN}it cannot be asked: {why}"
        for number, why in enumerate(whys)
    ] == plugin.shortfalls


@pytest.mark.usefixtures("webcam")
def test_what_may_not_be_opened_is_offered_and_told(machine: Machine) -> None:
    def refuse(path: str, _number: int) -> frozenset[str]:
        raise PermissionError(1, "Operation not permitted", path)

    for entry in ("video4linux, can: capture", "video4linux, not: {can: capture}"):
        plugin = with_cameras(machine, Cameras(refuse), BEHIND % entry)
        assert {"cam-C1": ["video0", "video1"]} == nodes(plugin)
        why = "it cannot be asked: Operation not permitted; the component generic-privileged lets "
        assert [
            f"{machine.dev}/video{number}: {UNKNOWN}{why}the plugin ask cameras"
            for number in (0, 1)
        ] == plugin.shortfalls


@pytest.mark.parametrize("number", ["", "x:y", "1", "99999999999999999999:1", "1:2:3"])
@pytest.mark.usefixtures("webcam")
def test_a_node_without_a_number_is_not_opened(machine: Machine, video: Video, number: str) -> None:
    (machine.sys / "class/video4linux/video0/dev").write_text(f"{number}\n")
    plugin = machine.plugin(NODE)
    assert {"cam-C1:1.0.0": ["video0"]} == nodes(plugin)
    assert plugin.shortfalls[0].endswith("sysfs has no device node of it")
    assert ["zero"] == video.asked


@pytest.mark.usefixtures("webcam")
def test_a_camera_that_gets_formats_later_is_asked_again_until_it_can(
    machine: Machine, video: Video
) -> None:
    clock = Clock()
    cameras = Cameras(clock=clock)
    for now, caps, formats, expected in (
        (0, CAPTURE, [], []),
        (1, CAPTURE, ["MJPG"], []),
        (AGAIN, CAPTURE, ["MJPG"], ["cam-C1:1.0.0"]),
        (2 * AGAIN, OUTPUT, [], ["cam-C1:1.0.0"]),  # as v4l2loopback when its writer ends
    ):
        clock.now = now
        video.answer("null", caps, *formats)
        reloaded = with_cameras(machine, cameras)
        assert expected == [*nodes(reloaded)]
    assert 2 == video.asked.count("null")


def test_abilities_that_come_and_go_change_no_id(machine: Machine, video: Video) -> None:
    chance, clock = random.Random(5), Clock()
    plugin = with_cameras(machine, Cameras(clock=clock))
    numbers = ("null", "zero", "full")
    for index, stand_in in enumerate(numbers):
        usb = machine.usb(f"1-{index + 1}", "046d:0825", index + 1, serial=f"C{index}")
        add_node(machine, usb, f"video{index}", stand_in)
    for _ in range(60):
        video.answer(chance.choice(numbers), CAPTURE, *chance.choice([["MJPG"], []]))
        clock.now += chance.choice([1, AGAIN])
        assert (
            nodes(plugin).items() <= {f"cam-C{n}:1.0.{n}": [f"video{n}"] for n in range(3)}.items()
        )


@pytest.mark.usefixtures("webcam")
def test_a_camera_that_hangs_is_offered_and_hinders_no_other(
    machine: Machine, release: Event
) -> None:
    def question(path: str, _number: int) -> frozenset[str]:
        asked.append(path[-6:])
        if path.endswith("video0"):
            release.wait()
        return frozenset({"capture"})

    asked: list[str] = []
    clock = Clock()
    plugin = with_cameras(machine, Cameras(question, clock, patience=0))
    for _ in range(3):
        assert BOTH == nodes(plugin)
        finish("video1")
        assert BOTH == nodes(plugin)
        (told,) = plugin.shortfalls
        assert told.endswith(f"/video0: {UNKNOWN}it does not answer")
        clock.now += AGAIN
    release.set()
    finish("video0")
    assert (BOTH, [], ["video0", "video1"]) == (nodes(plugin), plugin.shortfalls, asked)


def test_what_a_camera_has_answered_stays_when_it_fails_or_hangs(
    machine: Machine, release: Event
) -> None:
    """Otherwise a node that delivers metadata becomes a camera, or is added to one."""

    def question(path: str, _number: int) -> frozenset[str]:
        asked.append(path[-6:])
        if len(asked) in {3, 4}:
            raise OSError(16, "Device or resource busy", path)
        if len(asked) > 4:
            release.wait()
        return frozenset({"capture"} if path.endswith("video0") else ())

    usb, asked, clock = machine.usb("1-4", "046d:0825", 4, serial="C1"), list[str](), Clock()
    for name in ("video0", "video1"):
        machine.behind_usb(usb, "1.0", "video4linux", name, index=name[5:])
    cameras = Cameras(question, clock, patience=0)
    capture, codec = (
        with_cameras(machine, cameras, BEHIND % f"video4linux, can: {can}")
        for can in ("capture", "codec")
    )
    capture.discover()
    for name in ("video0", "video1"):
        finish(name)
    for _ in range(4):
        assert {"cam-C1": ["video0"]} == nodes(capture)
        assert ({}, []) == (nodes(codec), codec.shortfalls)
        clock.now += AGAIN
    assert ["video0", "video1"] * 3 == [*asked[:2], *sorted(asked[2:4]), *sorted(asked[4:])]


def test_cameras_that_hang_keep_few_threads(machine: Machine, release: Event) -> None:
    """Also those that were unplugged meanwhile."""

    def question(_path: str, _number: int) -> frozenset[str]:
        release.wait()
        return frozenset()

    before, told = {*threading.enumerate()}, ""
    plugin = with_cameras(machine, Cameras(question, patience=0))
    for number in range(9):
        usb = machine.usb("1-1", "046d:0825", 1, serial="C1")
        machine.behind_usb(usb, "1.0", "video4linux", f"video{number}")
        assert 1 == len(nodes(plugin))
        told = plugin.shortfalls[0]
        machine.unplug(usb)
    assert told.endswith("too many others do not answer")
    assert 8 == len({*threading.enumerate()} - before)


@pytest.mark.usefixtures("webcam")
def test_a_camera_is_unknown_while_no_thread_can_be_had(
    machine: Machine, video: Video, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    plugin = machine.plugin(NODE)
    for _ in range(2):
        assert (BOTH, 2, []) == (nodes(plugin), len(plugin.shortfalls), video.asked)


@pytest.mark.usefixtures("webcam")
def test_explaining_opens_no_camera(machine: Machine, video: Video) -> None:
    tree = Tree(machine.roots)
    assert [None, None] == [tree.can(one, ["capture"]) for one in tree.subsystem("video4linux")]
    assert [] == video.asked


def test_a_camera_that_is_here_answers() -> None:
    """Whatever this machine has: a real one, or that of v4l2loopback or vivid."""
    if not (here := [*Path("/dev").glob("video*")]):
        pytest.skip("no camera here")
    for node in here:
        assert ask(str(node), node.stat().st_rdev) <= {*ABILITIES["video4linux"]}
