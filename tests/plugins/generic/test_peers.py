"""A manifest of generic-device-plugin whose image alone was changed."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from generic.plugin import make_node
from hardware.tree import Hardware

COMMAND = str(Path(sys.executable).with_name("generic-device-plugin"))
DEVICES = [
    """\
name: serial
groups:
  - paths:
      - path: {dev}/ttyUSB*
  - paths:
      - path: {dev}/ttyACM*
""",
    """\
name: fuse
groups:
  - count: 3
    paths:
      - path: {dev}/fuse
""",
    """\
name: audio
groups:
  - count: 2
    paths:
      - path: {dev}/snd
""",
    """\
name: capture
groups:
  - paths:
      - path: {dev}/controlC0
      - path: {dev}/pcmC0D0c
  - paths:
      - path: {dev}/controlC1
        mountPath: /dev/snd/controlC0
      - path: {dev}/pcmC1D0c
        mountPath: /dev/snd/pcmC0D0c
""",
    '{{"name": "both ", "groups": [{{"paths": [{{"path": " {dev}/fuse "}}]}}]}}\n',
]


def sha1(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("words", "domain"),
    [
        ([], "devic.es"),
        (["--domain=squat.ai"], "squat.ai"),
        (["--domain", "x.io", "--listen", ":8080", "--plugin-directory=/x"], "x.io"),
        (["--log-level", "none", "--listen=:0"], "devic.es"),
    ],
)
def test_a_manifest_of_generic_device_plugin_gives_the_same_resources_and_ids(
    hardware: Hardware, words: list[str], domain: str
) -> None:
    for name in ("ttyUSB0", "ttyUSB1", "ttyACM0", "fuse", "controlC1", "pcmC1D0c"):
        hardware.node(name)
    make_node(hardware.dev / "snd/controlC0")
    dev = str(hardware.dev)
    flags = [word for text in DEVICES for word in ("--device", text.format(dev=dev))]
    done = subprocess.run(
        [COMMAND, *words, *flags, "--once", "--output=json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {
        (one["name"], device["id"], device["healthy"])
        for one in json.loads(done.stdout)["resources"]
        for device in one["devices"]
    }
    expected = {
        "serial": [f"0{dev}/ttyACM0", f"0{dev}/ttyUSB0", f"0{dev}/ttyUSB1"],
        "fuse": [f"{share}{dev}/fuse" for share in range(3)],
        "audio": [f"0{dev}/snd", f"1{dev}/snd"],
        "capture": [f"0{dev}/controlC1{dev}/pcmC1D0c"],
        "both": [f"0{dev}/fuse"],
    }
    assert found == {
        (f"{domain}/{name}", sha1(text), True) for name, texts in expected.items() for text in texts
    }
