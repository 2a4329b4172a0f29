"""What the hook makes of the runtime's state and the bundle's configuration."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_fpga.hook import container_request
from deviceplugin_fpga.hook.container_request import Node, Wish
from deviceplugin_fpga.hook.files import HookError
from fpga.trees import AFU, ALL_ONES, INTERFACE, OTHER_AFU

PORT = {"path": "/dev/dfl-port.0", "type": "c", "major": 240, "minor": 7}
OPAE_PORT = {"path": "/dev/intel-fpga-port.3", "type": "c", "major": 241, "minor": 0}
UNIQUE = "0123456789abcdef0123456789abcdef01234567"
ENV = (f"FPGA_REGION_1={INTERFACE}", f"FPGA_AFU_1={AFU}")

Change = Callable[[dict[str, Any]], object]


def config(*env: str, devices: list[Any] | None = None) -> dict[str, Any]:
    return {
        "process": {"env": ["PATH=/bin", *(env or ENV)]},
        "linux": {"devices": [PORT] if devices is None else devices},
    }


def read(folder: Path, given: dict[str, Any] | str) -> container_request.Request:
    text = given if isinstance(given, str) else json.dumps(given)
    (folder / "config.json").write_text(text)
    return container_request.read(state_of(str(folder)))


def state_of(bundle: str) -> io.BytesIO:
    return io.BytesIO(json.dumps({"bundle": bundle}).encode())


def refusal(folder: Path, given: dict[str, Any] | str) -> str:
    with pytest.raises(HookError) as caught:
        read(folder, given)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_container_asks_for_regions_and_has_ports(tmp_path: Path) -> None:
    env = (
        f"FPGA_REGION_2={INTERFACE}",
        f"FPGA_AFU_10={AFU}",
        f"FPGA_AFU_2={OTHER_AFU}",
        f"FPGA_REGION_10={INTERFACE}",
    )
    found = read(tmp_path, config(*env, devices=[PORT, {"path": "/dev/null"}, OPAE_PORT, PORT]))
    assert (Wish("2", INTERFACE, OTHER_AFU), Wish("10", INTERFACE, AFU)) == found.wishes
    assert [("DFL", "dfl-port.0", "240:7"), ("OPAE", "intel-fpga-port.3", "241:0")] == [
        (node.driver.name, node.name, node.number) for node in found.nodes
    ]
    assert all(isinstance(node, Node) for node in found.nodes)


@pytest.mark.parametrize(
    ("number", "region", "afu", "expected"),
    [
        ("1", " CE489693-98F0-5F33-946D-560708BE108A ", f"{AFU}\n", AFU),
        ("9" * 5000, INTERFACE, AFU, AFU),
        ("1", INTERFACE, UNIQUE, UNIQUE),  # of OpenCL
    ],
    ids=range(3),
)
def test_ids_may_be_written_as_people_write_them(
    tmp_path: Path, number: str, region: str, afu: str, expected: str
) -> None:
    found = read(tmp_path, config(f"FPGA_REGION_{number}={region}", f"FPGA_AFU_{number}={afu}"))
    assert (Wish(number, INTERFACE, expected),) == found.wishes


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (b"", "the state on standard input: not valid JSON: Expecting value"),
        (b"\xff", "the state on standard input: not valid JSON: "),
        (b"[" * 200_000, "the state on standard input: not valid JSON: "),
        (b"[]", "the state on standard input: not a JSON object"),
        (b'{"bundle": ""}', "the state on standard input: no bundle"),
        (b'{"bundle": 1}', "the state on standard input: no bundle"),
        (b'{"bundle": "/nowhere"}', "/nowhere/config.json: No such file or directory"),
        (b'{"bundle": "a\\u0000b"}', r"'a\x00b/config.json': embedded null byte"),
        (b'{"bundle": "\\ud800"}', r"'\ud800/config.json': 'utf-8' codec can't encode"),
        (b'"' + b"x" * (16 * 1024**2), "the state on standard input: more than 16777216 bytes"),
    ],
    ids=range(10),
)
def test_a_state_that_cannot_be_used_is_refused(state: bytes, expected: str) -> None:
    with pytest.raises(HookError) as caught:
        container_request.read(io.BytesIO(state))
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c.pop("process"), "config.json: no process.env"),
        (lambda c: c.update(process=[]), "config.json: no process.env"),
        (lambda c: c["process"].update(env=[]), "config.json: no process.env"),
        (lambda c: c["process"].update(env="x"), "config.json: no process.env"),
        (lambda c: c.pop("linux"), "config.json: no linux.devices"),
        (lambda c: c["linux"].update(devices=[]), "config.json: no linux.devices"),
        (
            lambda c: c["linux"].update(devices=[{"path": "/dev/null"}, {}]),
            "config.json: no FPGA among linux.devices",
        ),
        (
            lambda c: c["linux"].update(devices=[PORT, "x"]),
            "config.json: linux.devices: 'x' is not an object",
        ),
        (
            lambda c: c["linux"].update(devices=[{**PORT, "major": "1\0"}]),
            "config.json: linux.devices: dfl-port.0 has no device number",
        ),
    ],
    ids=range(9),
)
def test_a_configuration_with_less_than_is_needed_is_refused(
    tmp_path: Path, change: Change, expected: str
) -> None:
    given = config()
    change(given)
    assert expected == refusal(tmp_path, given)


NASTY = "\x1b[31m\n\u202e" + "x" * 5000


@pytest.mark.parametrize(
    "given",
    [
        config(ENV[0], f"FPGA_AFU_1={NASTY}"),
        config(*ENV, f"FPGA_AFU_{'9' * 100_000}=x"),
        config(devices=[NASTY]),
        config(devices=[{"path": f"/dev/dfl-port.{'1' * 5000}"}]),
        config(devices=[{"path": NASTY}]),
    ],
    ids=range(5),
)
def test_what_others_wrote_is_shown_in_one_short_line(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    text = refusal(tmp_path, given)
    assert (True, True) == (text.isprintable(), len(text) < 200)


@pytest.mark.parametrize("bundle", [NASTY, "\0" * 5000, "\ud800" * 5000])
def test_the_path_of_a_bundle_is_shown_in_one_short_line(bundle: str) -> None:
    with pytest.raises(HookError) as caught:
        container_request.read(state_of(bundle))
    text = str(caught.value)
    assert (True, True) == (text.isprintable(), len(text) < 800)


def test_a_broken_configuration_is_refused_and_a_pipe_not_waited_for(tmp_path: Path) -> None:
    for text in ("", "null"):
        assert "config.json: not " in refusal(tmp_path, text)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(HookError, match="not a regular file"):
        container_request.read(state_of(str(tmp_path)))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (("A=B", 5), "config.json: no variable FPGA_REGION_1"),
        (ENV[1:], "config.json: no variable FPGA_REGION_1"),
        (ENV[:1], "config.json: FPGA_REGION_1 without FPGA_AFU_1"),
        ((*ENV, f"FPGA_REGION_2={INTERFACE}"), "config.json: FPGA_REGION_2 without FPGA_AFU_2"),
        ((*ENV, f"FPGA_AFU_3={AFU}"), "config.json: FPGA_AFU_3 without FPGA_REGION_3"),
        ((ENV[0], f"FPGA_AFU_01={AFU}"), "config.json: FPGA_AFU_01 without FPGA_REGION_01"),
        ((ENV[0], "FPGA_AFU_1="), "FPGA_AFU_1: '' is not an id"),
        ((ENV[0], "FPGA_AFU_1=../../etc/x"), "FPGA_AFU_1: '../../etc/x' is not an id"),
        ((ENV[0], f"FPGA_AFU_1={ALL_ONES}"), f"FPGA_AFU_1: '{ALL_ONES}' is not an id"),
        (("FPGA_REGION_1=ce4", ENV[1]), "FPGA_REGION_1: 'ce4' is not an id"),
    ],
)
def test_variables_that_do_not_fit_are_refused(
    tmp_path: Path, env: tuple[Any, ...], expected: str
) -> None:
    assert expected == refusal(tmp_path, config(*env))
