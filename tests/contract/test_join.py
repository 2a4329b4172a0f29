"""Images for several platforms: one archive, of which a registry and a runtime take what fits."""

import json
from pathlib import Path

import pytest

import images
import release
import versions
from archive import Archive
from containers.oci_image import write_plugin
from join import join


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{one}.tar" for one in ("arm64", "amd64")]
    for path in paths:
        write_plugin(path, path.stem, path.stem.encode())
    return paths


def write_bill(part: Path) -> dict[str, object]:
    """Write a bill of materials beside an archive, and return it."""
    component = {"type": "container", "name": "gopher-device-plugin", "version": "0.1.0"}
    bill: dict[str, object] = {"bomFormat": "CycloneDX", "metadata": {"component": component}}
    part.with_suffix(".cdx.json").write_text(json.dumps({**bill, "components": [part.stem]}))
    return {**bill, "components": [part.stem]}


def test_a_joined_archive_has_the_images_unchanged_with_their_bills_and_is_always_the_same(
    parts: list[Path], tmp_path: Path
) -> None:
    bills = {Archive(part).digest: write_bill(part) for part in parts}
    target = tmp_path / "joined.tar"
    join(parts, target)
    first = target.read_bytes()
    join(parts[::-1], target)
    assert first == target.read_bytes()
    joined = Archive(target)
    assert ["amd64", "arm64"] == joined.architectures  # a statement is for none
    (tmp_path / "root").mkdir()
    joined.extract(tmp_path / "root")
    assert "amd64" == (tmp_path / "root/opt/plugin/what").read_text()
    images, statements = (joined._blob(joined.digest)["manifests"][i : i + 2] for i in (0, 2))
    assert list(bills)[::-1] == [one["digest"] for one in images]
    for entry in statements:
        assert {"architecture": "unknown", "os": "unknown"} == entry["platform"]
        about = entry["annotations"]["vnd.docker.reference.digest"]
        manifest = joined._blob(entry["digest"])
        assert len(json.dumps(manifest)) == entry["size"]
        (layer,) = manifest["layers"]
        config = joined._blob(manifest["config"]["digest"])
        assert [layer["digest"]] == config["rootfs"]["diff_ids"]
        digest = {"sha256": about.removeprefix("sha256:")}
        assert {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": "gopher-device-plugin", "digest": digest}],
            "predicateType": layer["annotations"]["in-toto.io/predicate-type"],
            "predicate": bills.pop(about),
        } == joined._blob(layer["digest"])
        assert "https://cyclonedx.org/bom" == layer["annotations"]["in-toto.io/predicate-type"]
        assert "attestation-manifest" == entry["annotations"]["vnd.docker.reference.type"]
    assert {} == bills


def test_an_image_for_one_platform_can_be_joined_alone(parts: list[Path], tmp_path: Path) -> None:
    write_bill(parts[0])
    join(parts[:1], tmp_path / "joined.tar")
    joined = Archive(tmp_path / "joined.tar")
    assert (["arm64"], True) == (joined.architectures, joined.is_joined)
    assert joined.digest != Archive(parts[0]).digest
    assert not Archive(parts[0]).is_joined


def test_two_images_for_one_platform_are_refused(parts: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is an image for arm64 already"):
        join([parts[0], parts[0]], tmp_path / "joined.tar")
    join(parts, tmp_path / "joined.tar")
    with pytest.raises(ValueError, match=r"joined\.tar is not an OCI archive of one image"):
        join([tmp_path / "joined.tar"], tmp_path / "again.tar")


def test_what_was_built_on_two_machines_is_joined_by_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "TARGET", tmp_path)
    name = f"gopher-device-plugin-{versions.current()}.tar"
    for architecture in ("amd64", "arm64"):
        write_plugin(tmp_path / architecture / name, architecture)
    (tmp_path / name).with_suffix(".cdx.json").write_text("of one platform")
    assert 0 == images.main(["gopher", "--join", "amd64,arm64"])
    assert "gopher: amd64, arm64\n" == capsys.readouterr().out
    assert ["amd64", "arm64"] == Archive(tmp_path / name).architectures
    assert not (tmp_path / name).with_suffix(".cdx.json").exists()
    assert 1 == images.main(["gopher", "--join", "amd64,riscv64"])
    assert f"riscv64/{name}" in capsys.readouterr().err


def test_a_release_has_a_bill_of_materials_for_each_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: list[Path]
) -> None:
    monkeypatch.setattr(release, "IMAGES", tmp_path)
    monkeypatch.setattr(release, "TARGET", tmp_path / "release")
    (tmp_path / "release").mkdir()
    for one in ("amd64", "arm64"):
        (tmp_path / one).mkdir()
        (tmp_path / one / "x-1.cdx.json").write_text(one)
    expected = {"x-1-arm64.cdx.json": "arm64"}
    for joined, more in ((parts[:1], {}), (parts, {"x-1-amd64.cdx.json": "amd64"})):
        join(joined, tmp_path / "x-1.tar")
        release.copy_bills(tmp_path / "x-1.tar")
        found = {path.name: path.read_text() for path in (tmp_path / "release").iterdir()}
        assert expected | more == found
    release.copy_bills(parts[0])  # of one: its bill lies beside it


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arm64", "'arm64' is not a platform such as linux/arm64"),
        ("linux/arm64,windows/amd64", "'windows/amd64' is not a platform"),
        ("linux/arm64,linux/arm64/v8", "has an architecture twice"),
    ],
)
def test_a_platform_that_is_none_is_refused(
    text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        images.main(["gopher", "--platform", text])
    assert said in capsys.readouterr().err


def test_the_architecture_is_called_as_kubernetes_calls_it() -> None:
    assert ["", "amd64", "arm64"] == [
        images.architecture(one) for one in ("", "linux/amd64", "linux/arm64/v8")
    ]
