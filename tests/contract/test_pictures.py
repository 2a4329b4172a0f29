"""The pictures of pages are of what the repository has now, and are made by a command."""

import random
import shutil
import struct
import zlib
from pathlib import Path

import pytest

import browser
import drawings

ROOT = Path(__file__).parents[2]
needs_browser = pytest.mark.skipif(
    next(filter(shutil.which, browser.BROWSERS), None) is None, reason="no chromium"
)


def size(picture: bytes) -> tuple[int, int]:
    (header,) = (content for kind, content in browser.parts(picture) if kind == b"IHDR")
    width, height = struct.unpack(">II", header[:8])
    return width, height


@pytest.mark.parametrize(
    ("name", "place", "expected"),
    [
        ("page", drawings.PAGE, (1686, 900)),
        ("dashboard", drawings.DASHBOARD, drawings.DASHBOARD_SIZE),
    ],
)
def test_a_picture_is_of_what_is_in_the_repository(
    name: str, place: Path, expected: tuple[int, int]
) -> None:
    assert drawings.checksum(name) == browser.source_of(place.read_bytes()), (
        f"{place.name} is older than what it shows: run build/pictures/drawings.py {name}"
    )
    assert f"]({place.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    assert expected == size(place.read_bytes())


def chunk(kind: bytes, content: bytes) -> bytes:
    head = struct.pack(">I", len(content)) + kind + content
    return head + struct.pack(">I", zlib.crc32(kind + content))


def test_the_lower_part_of_a_picture_is_cut() -> None:
    rows = [bytes([0, 10 * number, 0, 0]) for number in range(5)]  # one pixel each
    header = struct.pack(">IIBBBBB", 1, 5, 8, 2, 0, 0, 0)
    packed = zlib.compress(b"".join(rows))
    picture = browser.SIGNATURE + chunk(b"IHDR", header)
    picture += chunk(b"IDAT", packed[:9]) + chunk(b"IDAT", packed[9:]) + chunk(b"IEND", b"")
    assert "" == browser.source_of(picture)
    made = browser.cut(picture, 3, "abc")
    assert (1, 3) == size(made)
    assert "abc" == browser.source_of(made)
    assert zlib.decompress(dict(browser.parts(made))[b"IDAT"]) == b"".join(rows[:3])
    assert [b"IHDR", b"tEXt", b"IDAT", b"IEND"] == [kind for kind, _ in browser.parts(made)]


@needs_browser
def test_a_browser_draws_the_whole_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<body style="margin:0"><div style="height:300px;background:#102030">')
    browser.draw(page, (200, 300), tmp_path / "page.png", "x")
    picture = (tmp_path / "page.png").read_bytes()
    assert (200, 300) == size(picture)
    rows = zlib.decompress(dict(browser.parts(picture))[b"IDAT"])
    width = len(rows) // 300
    # Each says that it is as the one above it: nothing is left white below.
    assert 1 == len({rows[at : at + width] for at in range(width, len(rows), width)})


def test_a_command_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for word in ("page", "dashboard"):
        with pytest.raises(SystemExit, match="no chromium: apt-get install chromium"):
            drawings.main([word])
    with pytest.raises(SystemExit, match=r"drawings\.py dashboard \[SECONDS\]"):
        drawings.main([])


def test_pods_come_and_go_and_devices_fail_and_recover() -> None:
    chance = random.Random(7)
    held, failed = set(), set()
    with drawings.fleet(["n1"]) as (ports, plugins):
        assert {"n1": 2} == {name: len(found) for name, found in ports.items()}
        for number in range(200):
            plugin = plugins[number % 2]
            plugin.step(chance, number)
            held.add(len(plugin.pods))
            failed.add(len(plugin.plugin.failed))
    assert {0, 1, 2} <= held
    assert {0, 1} == failed
