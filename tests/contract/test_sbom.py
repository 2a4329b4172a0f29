"""What the bills of materials of images say, and that they are right."""

import json
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

import sbom
from containers.image_tree import lay_out

STATUS = """\
Package: libssl3
Version: 3.0.20-1~deb12u2
Architecture: amd64
Source: openssl
Depends: libc6 (>= 2.34), libgone | libother:any

Package: libc6
Version: 2.36-9
Architecture: amd64
Source: glibc (2.36-8)
"""
REPORT = {
    "install": [
        {
            "metadata": {"name": "GRPCio"},
            "download_info": {"archive_info": {"hashes": {"sha256": "ab" * 32}}},
        }
    ]
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out("gopher", tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def inner(packages: Path) -> dict[str, Any]:
    return sbom.document("gopher-device-plugin", packages, REPORT)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The root of an image: CPython without a package, and two packages of Debian."""
    for name, text in {
        "etc/os-release": 'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="12"\n',
        "var/lib/dpkg/status.d/all": STATUS,
        "usr/share/doc/libssl3/copyright": "Format: a\nLicense: Apache-2.0\nLicense: Artistic\n",
        "usr/share/doc/libc6/copyright": "This is free.\nLicense: prose\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    library = tmp_path / "usr/local/lib/libpython3.13.so.1.0"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"ELF\0003.13\0003.13.15\0rest")
    return tmp_path


def part(document: dict[str, Any], name: str) -> Any:
    (found,) = (one for one in document["components"] if one["name"] == name)
    return found


def needs(document: dict[str, Any], ref: str) -> Any:
    (found,) = (one["dependsOn"] for one in document["dependencies"] if one["ref"] == ref)
    return found


def refs(place: Any) -> Iterator[str]:
    """Yield every bom-ref in a document."""
    if isinstance(place, dict):
        yield from [place["bom-ref"]] if "bom-ref" in place else []
        yield from (ref for one in place.values() for ref in refs(one))
    elif isinstance(place, list):
        yield from (ref for one in place for ref in refs(one))


def test_a_package_has_a_hash_what_is_linked_into_it_and_what_it_asks_for(
    inner: dict[str, Any],
) -> None:
    own, framework, grpcio = (
        part(inner, one) for one in ("deviceplugin-gopher", "deviceplugin", "grpcio")
    )
    assert [{"alg": "SHA-256", "content": "ab" * 32}] == grpcio["hashes"]
    assert "hashes" not in own  # built in the image
    found = {one["name"]: one for one in grpcio["components"]}
    assert {"abseil-cpp", "boringssl", "c-ares", "re2", "upb", "zlib"} == {*found}
    assert {"abseil-cpp", "zlib"} == {name for name, one in found.items() if "version" in one}
    assert found["zlib"]["version"] in found["zlib"]["cpe"]
    assert "pkg:generic/boringssl" == found["boringssl"]["purl"]
    assert [own["bom-ref"]] == needs(inner, "gopher-device-plugin")
    assert framework["bom-ref"] in needs(inner, own["bom-ref"])
    assert grpcio["bom-ref"] in needs(inner, framework["bom-ref"])
    assert "0.1.0" == inner["metadata"]["component"]["version"]


def test_the_interpreter_of_an_image_is_in_its_bill(inner: dict[str, Any], root: Path) -> None:
    whole = sbom.complete(inner, root)
    python = part(whole, "python")
    assert ("3.13.15", "pkg:generic/python@3.13.15") == (python["version"], python["purl"])
    assert python["cpe"].startswith("cpe:2.3:a:python:python:3.13.15:")
    assert python["bom-ref"] in needs(whole, "gopher-device-plugin")


def test_this_interpreter_shows_its_version(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    home = Path(sys.base_prefix)
    for path in (*home.glob("lib/libpython3.*.so*"), Path(sys.executable).resolve()):
        shutil.copy(path, tmp_path / "bin" / path.name)
    (found,) = sbom.of_interpreter(tmp_path)
    assert sys.version.split()[0] == found["version"]


def test_debians_interpreter_is_there_once_as_a_package(inner: dict[str, Any], root: Path) -> None:
    text = "Package: python3.13-minimal\nVersion: 3.13.5-2\nArchitecture: amd64\n"
    (root / "var/lib/dpkg/status.d/python").write_text(text)
    names = [one["name"] for one in sbom.complete(inner, root)["components"]]
    assert "python" not in names
    assert "python3.13-minimal" in names


def test_debian_packages_have_what_scanners_find_flaws_by(
    inner: dict[str, Any], root: Path
) -> None:
    whole = sbom.complete(inner, root)
    system = part(whole, "debian")
    assert ("operating-system", "12") == (system["type"], system["version"])
    assert part(whole, "libssl3")["purl"].endswith("?arch=amd64&distro=debian-12&upstream=openssl")
    assert part(whole, "libc6")["purl"].endswith("&upstream=glibc%402.36-8")
    known = {one["name"]: one["value"] for one in part(whole, "libc6")["properties"]}
    expected = {"package:metadataType": "dpkg-db-entry", "metadata:source": "glibc"}
    expected |= {"metadata:sourceVersion": "2.36-8"}
    assert {f"syft:{name}": value for name, value in expected.items()} == known
    assert [part(whole, "libc6")["bom-ref"]] == needs(whole, part(whole, "libssl3")["bom-ref"])
    licences = [one["license"]["name"] for one in part(whole, "libssl3")["licenses"]]
    assert ["Apache-2.0", "Artistic"] == licences
    assert "licenses" not in part(whole, "libc6")


def test_references_are_unique_and_lead_to_components(inner: dict[str, Any], root: Path) -> None:
    whole = sbom.complete(inner, root)
    known = [*refs(whole)]
    assert len({*known}) == len(known)
    named = {one["ref"]: one["dependsOn"] for one in whole["dependencies"]}
    assert {*named, *(ref for needed in named.values() for ref in needed)} <= {*known}


def test_the_same_content_has_the_same_serial_number_and_other_content_another(
    inner: dict[str, Any], packages: Path, root: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps(REPORT))
    assert inner == json.loads(sbom.main(["gopher-device-plugin", str(packages), str(report)]))
    assert inner["serialNumber"].startswith("urn:uuid:")
    assert inner["serialNumber"] != sbom.complete(inner, root)["serialNumber"]
    (tmp_path / "empty").mkdir()
    other = sbom.complete(inner, tmp_path / "empty")  # an image of another base
    assert [inner[key] for key in ("components", "dependencies")] == [
        other[key] for key in ("components", "dependencies")
    ]


def test_a_bill_has_the_version_of_the_operator(tmp_path: Path) -> None:
    for package in ("deviceplugin-operator", "deviceplugin"):
        copied = distribution(package)
        target = tmp_path / f"{package}-{copied.version}.dist-info"
        target.mkdir()
        (target / "METADATA").write_text(str(copied.read_text("METADATA")))
    component = sbom.document("deviceplugin-operator", tmp_path, {})["metadata"]["component"]
    assert ("deviceplugin-operator", "0.1.0") == (component["name"], component["version"])
