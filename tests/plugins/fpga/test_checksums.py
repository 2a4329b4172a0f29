"""Checksums beside bitstreams: one that is there decides, whatever is wrong with it."""

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from deviceplugin_fpga.hook import bitstreams
from deviceplugin_fpga.hook.files import HookError
from fpga.bitstreams import aocx, gbs
from fpga.trees import AFU, INTERFACE

NAME = f"{AFU}.gbs"
CONTENT = gbs(image=b"x" * 1000)
GOOD = hashlib.sha256(CONTENT).hexdigest()
BAD = hashlib.sha256(b"").hexdigest()
HOW = f"write it with: sha256sum {NAME} > {NAME}.sha256"
MALFORMED = f"{NAME}.sha256: not a SHA-256 checksum as sha256sum writes it; {HOW}"


@pytest.fixture
def bitstream(tmp_path: Path) -> Path:
    path = tmp_path / INTERFACE / NAME
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def beside(bitstream: Path, checksum: bytes) -> Path:
    path = bitstream.with_name(f"{bitstream.name}.sha256")
    path.write_bytes(checksum)
    return path


def found(bitstream: Path) -> bytes:
    folder = bitstream.parent.parent
    return bytes(bitstreams.find(folder, INTERFACE, bitstream.stem).image)


def refusal(bitstream: Path) -> str:
    with pytest.raises(HookError) as caught:
        found(bitstream)
    return str(caught.value).replace(f"{bitstream.parent}/", "")


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}  {NAME}\n",
        f"{GOOD} *{NAME}\n",
        f"{GOOD}  {NAME}\r\n",
        f"{GOOD}  {NAME}",
        f"{GOOD}  /srv/build/out/{NAME}\n",
        f"{GOOD}  -\n",
        f"{GOOD}\n",
        f"{GOOD}\r\n",
        GOOD,
        GOOD.upper(),
        f"\n{GOOD} \n\n",
    ],
)
def test_a_bitstream_with_its_checksum_is_taken(bitstream: Path, text: str) -> None:
    beside(bitstream, text.encode())
    assert b"x" * 1000 == found(bitstream)


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) // 2])
def test_a_truncated_bitstream_is_refused_by_its_checksum(bitstream: Path, size: int) -> None:
    beside(bitstream, f"{GOOD}  {NAME}\n".encode())
    bitstream.write_bytes(CONTENT[:size])
    now = hashlib.sha256(CONTENT[:size]).hexdigest()
    assert (
        f"{NAME}: damaged, truncated or another file: its SHA-256 is {now}, and {NAME}.sha256 says "
        f"{GOOD}; copy it here again, or {HOW}"
    ) == refusal(bitstream)


def test_an_opencl_program_has_a_checksum_too(tmp_path: Path) -> None:
    path = tmp_path / INTERFACE / f"{AFU}.aocx"
    path.parent.mkdir()
    path.write_bytes(aocx(AFU))
    beside(path, BAD.encode())
    assert f"{AFU}.aocx: damaged, truncated or another file: " in refusal(path)
    beside(path, hashlib.sha256(path.read_bytes()).hexdigest().encode())
    assert AFU.encode() == found(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        GOOD[:-1].encode(),
        f"{GOOD}0".encode(),
        f"{GOOD[:-1]}g  {NAME}".encode(),
        hashlib.sha512(CONTENT).hexdigest().encode(),
        f"{GOOD} {NAME}".encode(),
        f"SHA256 ({NAME}) = {GOOD}".encode(),
        f"{GOOD}  {NAME}\n{GOOD}  {NAME}\n".encode(),
        f"{GOOD}  {NAME}".encode("utf-16"),
        b"\xff" * 64,
        bytes(64),
        "\N{ARABIC-INDIC DIGIT ONE}".encode() * 64,
    ],
    ids=range(13),
)
def test_a_checksum_that_is_malformed_is_refused(bitstream: Path, content: bytes) -> None:
    beside(bitstream, content)
    assert MALFORMED == refusal(bitstream)


def test_a_checksum_of_another_file_is_refused(bitstream: Path) -> None:
    beside(bitstream, f"{GOOD}  other.gbs\n".encode())
    assert f"{NAME}.sha256: of 'other.gbs', not of {NAME}; {HOW}" == refusal(bitstream)


def test_the_name_of_another_file_is_shown_in_one_short_line(bitstream: Path) -> None:
    beside(bitstream, f"{GOOD}  \x1b[31m{'x' * 1000}\n".encode())
    text = refusal(bitstream)
    assert (True, True) == (text.isprintable(), len(text) < 400)


def test_a_checksum_that_leads_nowhere_is_refused(bitstream: Path) -> None:
    beside(bitstream, b"").unlink()
    bitstream.with_name(f"{NAME}.sha256").symlink_to("nowhere")
    assert f"{NAME}.sha256: a broken link; {HOW}" == refusal(bitstream)


def test_a_checksum_that_is_no_file_is_refused(bitstream: Path) -> None:
    bitstream.with_name(f"{NAME}.sha256").mkdir()
    assert f"{NAME}.sha256: not a regular file" == refusal(bitstream)


def test_a_checksum_that_cannot_be_read_is_refused(bitstream: Path) -> None:
    bitstream.with_name(f"{NAME}.sha256").symlink_to(f"{NAME}.sha256")
    assert f"{NAME}.sha256: Too many levels of symbolic links" == refusal(bitstream)


def test_a_checksum_that_is_a_bitstream_is_refused(bitstream: Path) -> None:
    beside(bitstream, CONTENT * 100)
    assert f"{NAME}.sha256: 122800 bytes: at most 4096 are allowed" == refusal(bitstream)


@pytest.mark.parametrize("flags", [[], ["--binary"]])
def test_what_sha256sum_writes_is_taken(bitstream: Path, flags: list[str]) -> None:
    program = shutil.which("sha256sum")
    if program is None:
        pytest.skip("no sha256sum")
    done = subprocess.run(
        [program, *flags, NAME], cwd=bitstream.parent, capture_output=True, check=True
    )
    beside(bitstream, done.stdout)
    assert b"x" * 1000 == found(bitstream)
