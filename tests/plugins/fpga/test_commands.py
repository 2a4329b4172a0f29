"""What pods ask for, and what is in a bitstream, for people: ``name`` and ``bitstream``."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from deviceplugin_fpga import commands, hook, resource_names
from deviceplugin_fpga.command_line import main
from fpga.bitstreams import aocx, gbs, signed
from fpga.trees import AFU, INTERFACE, OTHER_AFU, FpgaTree

UNIQUE = "0123456789abcdef0123456789abcdef01234567"
OTHER_INTERFACE = "bfac4d851ee856fe8c95865ce1bbaa2d"
ALIASES = {
    "aliases": [
        {"name": "aes-gcm", "interface": INTERFACE, "function": AFU},
        {"name": "pac", "interface": INTERFACE},
    ]
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DP_ALIASES", "DP_SYSFS_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"{AFU}.gbs"
    path.write_bytes(gbs(image=b"x" * 1000))
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    """Return what ``bitstream`` prints."""
    assert 0 == commands.bitstream([*map(str, words)])
    return capsys.readouterr().out.splitlines()


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert 1 == commands.bitstream([*map(str, words)])
    said = capsys.readouterr()
    assert ("", 1) == (said.out, said.err.count("\n"))
    return said.err.removeprefix("fpga-device-plugin bitstream: ").rstrip("\n")


# name


def test_the_name_comes_with_what_a_pod_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == commands.name([INTERFACE, AFU])
    by_function, by_region = yaml.safe_load_all(capsys.readouterr().out)
    assert {
        "resources": {"limits": {resource_names.Aliases().af(INTERFACE, AFU): 1}}
    } == by_function
    assert {
        "env": [
            {"name": "FPGA_REGION_1", "value": INTERFACE},
            {"name": "FPGA_AFU_1", "value": AFU},
        ],
        "resources": {"limits": {resource_names.Aliases().region(INTERFACE): 1}},
    } == by_region
    commands.name(["1" * 32, "2" * 32])  # digits alone stay texts
    _, by_region = yaml.safe_load_all(capsys.readouterr().out)
    assert ["1" * 32, "2" * 32] == [one["value"] for one in by_region["env"]]


def test_aliases_are_used(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: Path
) -> None:
    aliases = tmp_path / "aliases.json"
    aliases.write_text(json.dumps(ALIASES))
    flag = f"--aliases={aliases}"
    rows = asked(capsys, file, flag)
    assert "resource   fpga.intel.com/aes-gcm in mode af" in rows
    assert "           fpga.intel.com/pac in mode region" in rows
    for words in ([flag], []):
        commands.name([INTERFACE, AFU, *words])
        given = yaml.safe_load_all(capsys.readouterr().out)
        assert [{"fpga.intel.com/aes-gcm": 1}, {"fpga.intel.com/pac": 1}] == [
            one["resources"]["limits"] for one in given
        ]
        monkeypatch.setenv("DP_ALIASES", str(aliases))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ce4", AFU], "argument INTERFACE: 'ce4' is not an id of 32 hex digits"),
        ([INTERFACE, UNIQUE], f"argument FUNCTION: '{UNIQUE}' is not an id of 32 hex digits"),
        ([INTERFACE], "the following arguments are required: FUNCTION"),
        ([INTERFACE, AFU, "--aliases=/none.yaml"], "/none.yaml: No such file or directory"),
    ],
)
def test_a_name_that_cannot_be_told_is_exit_status_2(
    capsys: pytest.CaptureFixture[str], words: list[str], expected: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        commands.name(words)
    assert f"fpga-device-plugin name: error: {expected}\n" in capsys.readouterr().err


# bitstream


def test_a_bitstream_is_described_with_the_cards_that_it_fits(
    capsys: pytest.CaptureFixture[str], any_tree: FpgaTree, file: Path
) -> None:
    any_tree.simple(AFU, OTHER_AFU)
    port, fme = any_tree.words.port, f"{any_tree.words.fme}0"
    assert [
        f"file       {AFU}.gbs: green bitstream, 1228 bytes",
        f"interface  {INTERFACE}",
        f"function   {AFU}",
        "image      1000 bytes, not signed",
        f"sha256     {hashlib.sha256(file.read_bytes()).hexdigest()}",
        f"           no {AFU}.gbs.sha256 yet: sha256sum {AFU}.gbs > {AFU}.gbs.sha256",
        f"resource   {resource_names.Aliases().af(INTERFACE, AFU)} in mode af",
        f"           {resource_names.Aliases().region(INTERFACE)} in mode region",
        f"hook path  {hook._parser().get_default('bitstreams')}/{INTERFACE}/{AFU}.gbs",
        f"fits       {fme} on 0000:3b:00.0: {port}0 has this function, {port}1 has {OTHER_AFU}",
    ] == asked(capsys, file, f"--sysfs-dir={any_tree.sys}")


def test_a_checksum_that_fits_is_told_and_one_that_does_not_is_a_refusal(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    checksum = file.with_name(f"{file.name}.sha256")
    checksum.write_text(hashlib.sha256(file.read_bytes()).hexdigest())
    assert f"           as {file.name}.sha256 says" in asked(capsys, file)
    file.write_bytes(file.read_bytes()[:-1])
    assert f"{file}: damaged, truncated or another file: " in refusal(capsys, file)


def test_an_opencl_program_has_an_id_to_ask_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "program.aocx"
    path.write_bytes(aocx(UNIQUE, gbs(image=signed(b"x" * 128))))
    rows = asked(capsys, path)
    assert [
        f"function   {AFU}",
        f"asked for  {UNIQUE}",
        "image      1152 bytes, signed",
    ] == rows[2:5]
    assert f"hook path  /srv/intel.com/fpga/{INTERFACE}/{UNIQUE}.aocx" in rows


def test_what_fits_nothing_here_says_what_is_here(
    capsys: pytest.CaptureFixture[str], tree: FpgaTree, file: Path, tmp_path: Path
) -> None:
    flag = f"--sysfs-dir={tree.sys}"
    assert "fits       no card here: there is none" == asked(capsys, file, flag)[-1]
    tree.simple(AFU)
    other = tmp_path / "other.gbs"
    other.write_bytes(gbs(interface=OTHER_INTERFACE))
    expected = f"fits       no card here: dfl-fme.0 has interface {INTERFACE}"
    assert expected == asked(capsys, other, flag)[-1]
    none = asked(capsys, file, f"--sysfs-dir={tmp_path}")[-1]
    assert none.startswith("fits       no card here: kernel driver is not loaded: ")


def test_a_port_that_cannot_be_read_and_a_card_that_cannot_are_told(
    capsys: pytest.CaptureFixture[str], tree: FpgaTree, file: Path
) -> None:
    (port,) = tree.simple(AFU)
    (port / "afu_id").write_text("busy\n")
    (odd,) = tree.simple(AFU, address="0000:5e:00.0", number=1)
    (odd.parents[2] / "class").write_text("0x0\n")
    *_, fits, unknown = asked(capsys, file, f"--sysfs-dir={tree.sys}")
    assert fits.endswith(": dfl-port.0: afu_id: 'busy' is not an id of 32 hex digits")
    assert "unknown    0000:5e:00.0: PCI class '0x0' is not 0x120000" == unknown


def test_what_the_hook_would_refuse_is_exit_status_1(
    capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    for content, expected in (
        (b"", "too short for a bitstream"),
        (gbs(interface="x\x1b"), r"is for interface 'x\x1b', which is not an id of 32 hex digits"),
    ):
        file.write_bytes(content)
        assert f"{file}: {expected}" == refusal(capsys, file)
    file.unlink()
    assert f"{file}: No such file or directory" == refusal(capsys, file)


@pytest.mark.parametrize("command", ["name", "bitstream"])
def test_their_help_has_an_example(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["fpga-device-plugin", command, "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert f"example:\n  fpga-device-plugin {command} " in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["fpga-device-plugin", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert f"\n    {command} " in capsys.readouterr().out


def test_a_plugin_on_a_node_has_none_of_their_code_in_memory() -> None:
    code = "import sys, deviceplugin_fpga.command_line as _; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "deviceplugin_fpga.plugin" in modules
    assert [] == sorted(modules & {"deviceplugin_fpga.hook", "deviceplugin_fpga.commands"})
