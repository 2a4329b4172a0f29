"""Bitstreams: found by region and AFU, and believed only if they are what they say."""

import hashlib
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_fpga.hook import bitstreams
from deviceplugin_fpga.hook.files import HookError
from fpga.bitstreams import aocx, elf, gbs, metadata, signed
from fpga.trees import AFU, INTERFACE, OTHER_AFU
from patience import PATIENCE

UNIQUE = "0123456789abcdef0123456789abcdef01234567"


def store(root: Path, content: bytes, name: str = f"{AFU}.gbs") -> Path:
    path = root / INTERFACE / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def accelerators(count: int) -> dict[str, Any]:
    about = metadata()
    about["afu-image"]["accelerator-clusters"] *= count
    return about


def refusal(root: Path, afu: str = AFU) -> str:
    with pytest.raises(HookError) as caught:
        bitstreams.find(root, INTERFACE, afu)
    return str(caught.value).replace(f"{root}/{INTERFACE}", "")


@pytest.mark.parametrize("interface", [INTERFACE, "CE489693-98F0-5F33-946D-560708BE108A"])
def test_a_green_bitstream_is_found_by_region_and_function(tmp_path: Path, interface: str) -> None:
    path = store(tmp_path, gbs(interface, image=b"\1\2\3"))
    store(tmp_path, b"", f"{AFU}.aocx")  # not looked for
    found = bitstreams.find(tmp_path, INTERFACE, AFU)
    ids = (found.interface_id, found.afu_id, found.unique_id)
    assert (path, (INTERFACE, AFU, AFU), b"\1\2\3") == (found.path, ids, bytes(found.image))


@pytest.mark.parametrize("bits", [32, 64])
def test_an_opencl_program_is_found_by_its_own_id(tmp_path: Path, bits: int) -> None:
    store(tmp_path, aocx(f"{UNIQUE}\n", bits=bits), f"{UNIQUE}.aocx")
    found = bitstreams.find(tmp_path, INTERFACE, UNIQUE)
    assert (AFU, UNIQUE, AFU.encode()) == (found.afu_id, found.unique_id, bytes(found.image))


def test_a_bitstream_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert f": no bitstream {AFU}.gbs or .aocx" == refusal(tmp_path)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"magic": b"XeonFPGA\xb7GBSv002"}, "not a green bitstream, or damaged"),
        ({"length": 0}, "not a green bitstream, or damaged"),
        ({"length": 2**32 - 1}, "not a green bitstream, or damaged"),
        ({"image": b""}, "cut off: 228 bytes, and its image begins after 228"),
        ({"length": 7}, "metadata is not valid: JSONDecodeError("),
        ({"about": []}, "metadata is not valid: TypeError("),
        ({"about": {}}, "metadata is not valid: KeyError('afu-image')"),
        ({"about": {"afu-image": {}}}, "metadata is not valid: KeyError('accelerator-clusters')"),
        ({"interface": OTHER_AFU}, f"is for interface '{OTHER_AFU}', not {INTERFACE}"),
        ({"afu": OTHER_AFU}, f"has '{OTHER_AFU}', not {AFU}"),
        ({"afu": 7, "image": b"x"}, "metadata is not valid: TypeError('7 is not an id')"),
        ({"about": accelerators(0)}, "metadata is not valid: ValueError("),
        ({"about": accelerators(2)}, "metadata is not valid: ValueError("),
    ],
)
def test_a_green_bitstream_that_is_not_right_is_refused(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    store(tmp_path, gbs(**changes))
    assert refusal(tmp_path).startswith(f"/{AFU}.gbs: {expected}")


def test_a_function_that_no_port_can_have_is_refused(tmp_path: Path) -> None:
    store(tmp_path, gbs(afu="12345678"), "12345678.gbs")
    expected = "/12345678.gbs: has AFU '12345678', which is not an id of 32 hex digits"
    assert expected == refusal(tmp_path, "12345678")


@pytest.mark.parametrize("size", [0, 19, 21, 228])
def test_a_file_that_ends_before_its_image_is_refused(tmp_path: Path, size: int) -> None:
    store(tmp_path, gbs()[:size])
    expected = f"cut off: {size} bytes, and its image begins after 228"
    assert f"/{AFU}.gbs: {expected if size > 20 else 'too short for a bitstream'}" == refusal(
        tmp_path
    )


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (signed(b"x" * 255, length=256), "cut off: its signed image has 1279 bytes of 1280"),
        (signed(b"")[:132], "cut off: its signed image has 132 bytes of 1025"),
        (signed(b"x", length=2**32 - 1), "cut off: its signed image has 1025 bytes of 4294968319"),
    ],
)
def test_a_signed_image_that_is_shorter_than_it_says_is_refused(
    tmp_path: Path, image: bytes, expected: str
) -> None:
    store(tmp_path, gbs(image=image))
    assert f"/{AFU}.gbs: {expected}" == refusal(tmp_path)
    store(tmp_path, gbs(image=signed(b"x" * 256)))
    assert 1280 == len(bitstreams.find(tmp_path, INTERFACE, AFU).image)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = store(tmp_path, b"")
    path.unlink()
    path.symlink_to(path)
    assert f"/{AFU}.gbs: Too many levels of symbolic links" == refusal(tmp_path)
    path.unlink()
    path.mkdir()
    assert f"/{AFU}.gbs: not a regular file" == refusal(tmp_path)
    path.rmdir()
    os.mkfifo(path)
    assert f"/{AFU}.gbs: not a regular file" == refusal(tmp_path)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = store(tmp_path, b"")
    os.truncate(path, 2**40)
    code = (
        "import pathlib, resource, sys\n"
        "from deviceplugin_fpga.hook import bitstreams, files\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))\n"
        "try: bitstreams.find(pathlib.Path(sys.argv[1]), *sys.argv[2:])\n"
        "except files.HookError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path, INTERFACE, AFU],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    expected = f"{path}: 1099511627776 bytes: at most 536870912 are allowed\n"
    assert (0, expected, "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (gbs(interface="\x1b[31m\n" + "x" * 3000), f"{AFU}.gbs"),
        (gbs(about={"afu-image": {"accelerator-clusters": ["\x1b" * 500]}}), f"{AFU}.gbs"),
        (aocx("\x1b[31m\n" + "x" * 100_000), f"{UNIQUE}.aocx"),
    ],
    ids=range(3),
)
def test_what_a_bitstream_says_is_shown_in_one_short_line(
    tmp_path: Path, content: bytes, name: str
) -> None:
    store(tmp_path, content, name)
    text = refusal(tmp_path, Path(name).stem)
    assert (True, True) == (text.isprintable(), len(text) < 400)


INNER = elf({".acl.gbs.gz": b"not packed"})


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "not an ELF file"),
        (b"\x7fELF\7\1", "neither a 32-bit nor a 64-bit ELF file"),
        (b"\x7fELF\2\1" + bytes(58), "damaged: list index out of range"),
        (b"\x7fELF\2\1\1", "damaged: unpack_from requires a buffer"),
        (elf({}), "no section .acl.fpga.bin"),
        (elf({".acl.fpga.bin": elf({})}), "no section .acl.gbs.gz"),
        (elf({".acl.fpga.bin": b"x"}), "not an ELF file"),
        (elf({".acl.fpga.bin": INNER}), ".acl.gbs.gz: Error -3 while decompressing"),
        (aocx(UNIQUE, b""), "too short for a bitstream"),
        (aocx(UNIQUE, gbs(interface=OTHER_AFU)), f"is for interface '{OTHER_AFU}'"),
        (aocx("other"), f"has 'other', not {UNIQUE}"),
        (aocx(UNIQUE)[:-64], "damaged: unpack_from requires a buffer"),
        (aocx(UNIQUE).replace(b".acl.rand_hash", b".acl.rand_cash"), "no section .acl.rand_hash"),
    ],
    ids=range(13),
)
def test_an_opencl_program_that_is_not_right_is_refused(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    store(tmp_path, content, f"{UNIQUE}.aocx")
    assert refusal(tmp_path, UNIQUE).startswith(f"/{UNIQUE}.aocx: {expected}")


def test_a_table_or_a_section_outside_of_its_file_is_refused(tmp_path: Path) -> None:
    good = aocx(UNIQUE)
    (table,) = struct.unpack_from("<Q", good, 40)
    size = table + 64 + 32  # of the first section
    for at, value, expected in (
        (size, 2**64 - 1, "a section extends beyond the end of the file"),
        (40, 2**64 - 1, ""),
        (40, 2**62, ""),
    ):
        store(tmp_path, good[:at] + struct.pack("<Q", value) + good[at + 8 :], f"{UNIQUE}.aocx")
        assert refusal(tmp_path, UNIQUE).startswith(f"/{UNIQUE}.aocx: damaged: {expected}")


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = aocx(UNIQUE, gbs(image=bytes(2_000_000)))
    monkeypatch.setattr(bitstreams, "_LARGEST", 1_000_000)
    store(tmp_path, content, f"{UNIQUE}.aocx")
    expected = f"/{UNIQUE}.aocx: .acl.gbs.gz: more than 1000000 bytes, or cut off"
    assert expected == refusal(tmp_path, UNIQUE)


NAME = f"{AFU}.gbs"
CONTENT = gbs(image=b"x" * 1000)
GOOD = hashlib.sha256(CONTENT).hexdigest()
BAD = hashlib.sha256(b"").hexdigest()
HOW = f"write it with: sha256sum {NAME} > {NAME}.sha256"
MALFORMED = f"{NAME}.sha256: not a SHA-256 checksum as sha256sum writes it; {HOW}"


@pytest.fixture
def bitstream(tmp_path: Path) -> Path:
    return store(tmp_path, CONTENT)


def beside(bitstream: Path, checksum: bytes) -> Path:
    path = bitstream.with_name(f"{bitstream.name}.sha256")
    path.write_bytes(checksum)
    return path


def found(bitstream: Path) -> bytes:
    folder = bitstream.parent.parent
    return bytes(bitstreams.find(folder, INTERFACE, bitstream.stem).image)


def checksum_refusal(bitstream: Path) -> str:
    return refusal(bitstream.parent.parent, bitstream.stem).removeprefix("/")


@pytest.mark.parametrize(
    "text",
    [
        f"{GOOD}  {NAME}\n",
        f"{GOOD} *{NAME}\n",
        f"{GOOD}  {NAME}\r\n",
        f"{GOOD}  /srv/build/out/{NAME}\n",
        f"{GOOD}  -\n",
        GOOD,
        GOOD.upper(),
        f"\n{GOOD} \n\n",
    ],
)
def test_a_bitstream_with_its_checksum_is_taken(bitstream: Path, text: str) -> None:
    beside(bitstream, text.encode())
    assert b"x" * 1000 == found(bitstream)


def test_a_truncated_bitstream_is_refused_by_its_checksum(bitstream: Path) -> None:
    beside(bitstream, f"{GOOD}  {NAME}\n".encode())
    bitstream.write_bytes(CONTENT[:-1])
    now = hashlib.sha256(CONTENT[:-1]).hexdigest()
    assert (
        f"{NAME}: damaged, truncated or another file: its SHA-256 is {now}, and {NAME}.sha256 says "
        f"{GOOD}; copy it here again, or {HOW}"
    ) == checksum_refusal(bitstream)


def test_an_opencl_program_has_a_checksum_too(tmp_path: Path) -> None:
    path = store(tmp_path, aocx(AFU), f"{AFU}.aocx")
    beside(path, BAD.encode())
    assert f"{AFU}.aocx: damaged, truncated or another file: " in checksum_refusal(path)
    beside(path, hashlib.sha256(path.read_bytes()).hexdigest().encode())
    assert AFU.encode() == found(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        GOOD[:-1].encode(),
        f"{GOOD[:-1]}g  {NAME}".encode(),
        hashlib.sha512(CONTENT).hexdigest().encode(),
        f"{GOOD} {NAME}".encode(),
        f"SHA256 ({NAME}) = {GOOD}".encode(),
        f"{GOOD}  {NAME}\n{GOOD}  {NAME}\n".encode(),
        f"{GOOD}  {NAME}".encode("utf-16"),
        b"\xff" * 64,
        "\N{ARABIC-INDIC DIGIT ONE}".encode() * 64,
    ],
    ids=range(10),
)
def test_a_checksum_that_is_malformed_is_refused(bitstream: Path, content: bytes) -> None:
    beside(bitstream, content)
    assert MALFORMED == checksum_refusal(bitstream)


def test_a_checksum_of_another_file_is_refused_in_one_short_line(bitstream: Path) -> None:
    beside(bitstream, f"{GOOD}  other.gbs\n".encode())
    assert f"{NAME}.sha256: of 'other.gbs', not of {NAME}; {HOW}" == checksum_refusal(bitstream)
    beside(bitstream, f"{GOOD}  \x1b[31m{'x' * 1000}\n".encode())
    text = checksum_refusal(bitstream)
    assert (True, True) == (text.isprintable(), len(text) < 400)


def test_a_checksum_that_is_no_such_file_is_refused(bitstream: Path) -> None:
    path = beside(bitstream, CONTENT * 100)
    expected = f"{NAME}.sha256: 122800 bytes: at most 4096 are allowed"
    assert expected == checksum_refusal(bitstream)
    for target, expected in (
        ("nowhere", f"a broken link; {HOW}"),
        (".", "not a regular file"),
        (path.name, "Too many levels of symbolic links"),
    ):
        path.unlink()
        path.symlink_to(target)
        assert f"{NAME}.sha256: {expected}" == checksum_refusal(bitstream)


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
