"""CDI files of claims: written again when they are lost, removed when nobody needs them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from deviceplugin._attribution.ownership import Claim
from deviceplugin._dra.claims.claim_files import ClaimFiles, kind_of
from deviceplugin._dra.claims.record import Record
from full_disk import full_disk

DRIVER = "gopher.example.com"
KIND = kind_of(DRIVER)


@pytest.fixture
def claim_files(tmp_path: Path) -> ClaimFiles:
    return ClaimFiles(tmp_path / "cdi", DRIVER, tmp_path / "mounted")


def record(uid: str, document: Mapping[str, str]) -> Record:
    return Record(Claim("default", uid, uid), "boot", "prepared", [], document)


def names(found: ClaimFiles) -> list[str]:
    return sorted(path.name for path in found.directory.iterdir())


def test_lost_and_changed_files_are_written_again(claim_files: ClaimFiles) -> None:
    for uid in ("a", "b", "c"):
        claim_files.put(record(uid, {"kind": KIND, "uid": uid}))
    claim_files.drop("c")
    assert [] == claim_files.repair()
    lost, changed = (claim_files.directory / name for name in names(claim_files))
    lost.unlink()
    changed.write_text("{}")
    assert [lost, changed] == claim_files.repair()
    assert '"uid": "b"' in changed.read_text()
    for path in claim_files.directory.iterdir():
        path.unlink()
    claim_files.directory.rmdir()
    assert [lost, changed] == claim_files.repair()


def test_at_the_start_files_of_claims_that_are_gone_are_removed_and_no_others(
    claim_files: ClaimFiles, tmp_path: Path
) -> None:
    ClaimFiles(claim_files.directory, DRIVER, tmp_path).put(record("gone", {"kind": KIND}))
    other = ClaimFiles(claim_files.directory, f"{DRIVER}-claim_x", tmp_path)
    other.put(record("kept", {"kind": kind_of(f"{DRIVER}-claim_x")}))
    (claim_files.directory / f"k8s.{DRIVER}-static.json").write_text(
        f'{{"kind": "k8s.{DRIVER}/static"}}'
    )
    (claim_files.directory / f".k8s.{DRIVER}-claim_gone.json.{'0' * 32}.draft").touch()
    claim_files.restore([record("one", {"kind": KIND})])
    assert sorted(
        [
            f"k8s.{DRIVER}-claim_one.json",
            f"k8s.{DRIVER}-claim_x-claim_kept.json",
            f"k8s.{DRIVER}-static.json",
        ]
    ) == names(claim_files)


def test_one_file_that_cannot_be_written_keeps_no_other_from_it(claim_files: ClaimFiles) -> None:
    for uid in ("a", "b"):
        claim_files.put(record(uid, {"kind": KIND, "uid": uid}))
    first, second = (claim_files.directory / name for name in names(claim_files))
    first.unlink()
    second.unlink()
    first.mkdir()
    with pytest.raises(IsADirectoryError):
        claim_files.repair()
    assert second.exists()
    with pytest.raises(IsADirectoryError):
        claim_files.drop("a")
    first.rmdir()
    assert [first] == claim_files.repair()


def test_on_a_full_disk_a_new_file_is_not_wanted_later(claim_files: ClaimFiles) -> None:
    with full_disk(), pytest.raises(OSError, match="File too large"):
        claim_files.put(record("a", {"kind": KIND}))
    assert [] == claim_files.repair()
