"""Print the bill of materials of a folder of Python packages, as a CycloneDX 1.5 document.

    sbom.py NAME FOLDER [REPORT]

REPORT is that of the `pip install --report` that filled FOLDER: it has the hashes of the wheels.
``complete`` adds what is known only of a whole image. The same content gives the same document,
because it has no date.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

Component = dict[str, Any]

BUNDLED: Final[Mapping[str, re.Pattern[bytes]]] = {
    "abseil-cpp": re.compile(rb"lts_(\d{8})"),
    "boringssl": re.compile(rb"third_party/boringssl"),
    "c-ares": re.compile(rb"c-ares library initialization"),
    "llhttp": re.compile(rb"llhttp_init"),
    "re2": re.compile(rb"re2/re2/dfa\.cc"),
    "upb": re.compile(rb"upb_(?:Arena|DecodeFast)"),
    "utf8_range": re.compile(rb"utf8_range_IsValid"),
    "zlib": re.compile(rb"(?:in|de)flate (\d[\d.]*\d) Copyright"),
}
"""What shows that a library is linked into an extension module: nothing else says so. A group is
its version; the others do not tell theirs."""
_SOURCE: Final = re.compile(r"(\S+)(?: \((.+)\))?")
_PATCH: Final = rb"\.\d+(?:(?:a|b|rc)\d+)?\+?)\0"
"""What follows the minor version in the version of an interpreter, as its code has it."""


def of_python(folder: Path, report: Mapping[str, Any]) -> Iterator[Component]:
    """Yield a component for each package that is installed in ``folder``."""
    hashes = {_normal(one["metadata"]["name"]): one for one in report.get("install", ())}
    for package in distributions(path=[str(folder)]):
        name = _normal(package.name)
        purl = f"pkg:pypi/{name}@{quote(package.version)}"
        made: Component = {"type": "library", "bom-ref": purl, "name": name}
        made |= {"version": package.version, "purl": purl, **licences(package)}
        archive = hashes.get(name, {}).get("download_info", {}).get("archive_info", {})
        if known := archive.get("hashes", {}).get("sha256"):
            made["hashes"] = [{"alg": "SHA-256", "content": known}]
        if inside := [*bundled(package, purl)]:
            made["components"] = inside
        yield made


def bundled(package: Distribution, parent: str) -> Iterator[Component]:
    """Yield what is linked into the extension modules of a package, as far as they show it."""
    files = [Path(str(one.locate())) for one in package.files or () if one.suffix == ".so"]
    code = [path.read_bytes() for path in files if path.is_file()]
    for name, sign in BUNDLED.items():
        if found := next(filter(None, map(sign.search, code)), None):
            known = {"version": found[1].decode()} if sign.groups else {}
            purl = "@".join([f"pkg:generic/{name}", *known.values()])
            method = {"technique": "binary-analysis", "confidence": 0.8}
            identity = {"field": "version" if known else "name", "methods": [method]}
            made = {"type": "library", "bom-ref": f"{parent}#{name}", "name": name, "purl": purl}
            if name == "zlib":
                made["cpe"] = f"cpe:2.3:a:zlib:zlib:{known['version']}:*:*:*:*:*:*:*"
            yield {**made, **known, "evidence": {"identity": identity}}


def licences(package: Distribution) -> Component:
    """Return the licence in the package's metadata: an expression, or names."""
    metadata = package.metadata.json
    if "license_expression" in metadata:
        return {"licenses": [{"expression": metadata["license_expression"]}]}
    words = str(metadata.get("license", "")).strip().splitlines()
    known = [
        line.rpartition(" :: ")[2]
        for line in metadata.get("classifier", ())
        if line.startswith("License ::")
    ]
    return _named(known or words[:1])


def of_debian(root: Path) -> Iterator[tuple[Component, set[str]]]:
    """Yield a component for each Debian package in ``root``, with the names that it depends on."""
    system = next(of_system(root), {"name": "", "version": ""})
    distro = f"&distro={system['name']}-{system['version']}" if system["version"] else ""
    database = root / "var/lib/dpkg"
    for path in (database / "status", *sorted((database / "status.d").glob("*"))):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for entry in text.split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): (.+)$", entry, re.MULTILINE))
            if "Package" in fields:
                name, version = fields["Package"], fields["Version"]
                purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}"
                source, number = _SOURCE.findall(fields.get("Source") or name)[0]
                upstream = quote(f"{source}@{number}" if number else source, safe="")
                purl += f"?arch={fields['Architecture']}{distro}&upstream={upstream}"
                made = {"type": "library", "bom-ref": purl, "name": name, "version": version}
                made |= {"purl": purl, **_copyright(root, name), **_for_grype(source, number)}
                needs = f"{fields.get('Pre-Depends', '')},{fields.get('Depends', '')}"
                needs = re.sub(r"\([^)]*\)|:\w+", "", needs)
                yield made, set(re.findall(r"[a-z0-9][a-z0-9.+-]+", needs))


def _for_grype(source: str, number: str) -> Component:
    """Return the source package, of which flaws are known, where Grype looks for it."""
    known = {"package:metadataType": "dpkg-db-entry", "metadata:source": source}
    known |= {"metadata:sourceVersion": number} if number else {}
    return {"properties": [{"name": f"syft:{key}", "value": known[key]} for key in known]}


def _copyright(root: Path, name: str) -> Component:
    """Return the licences that a package's copyright names, if it is of the form for programs."""
    path = root / "usr/share/doc" / name / "copyright"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    is_for_programs = text.startswith(("Format:", "Format-Specification:"))
    found = re.findall(r"^License: *(\S.*?)\s*$", text, re.MULTILINE) if is_for_programs else ()
    return _named(sorted(set(found)))


def of_system(root: Path) -> Iterator[Component]:
    """Yield the distribution in ``root``: without it, scanners know no flaw of its packages."""
    for path in (root / "etc/os-release", root / "usr/lib/os-release"):
        if path.is_file():
            fields = re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', path.read_text(), re.MULTILINE)
            known = {"VERSION_ID": "", **dict(fields)}
            name, version = known["ID"], known["VERSION_ID"]
            yield {"type": "operating-system", "bom-ref": "os", "name": name, "version": version}
            return


def of_interpreter(root: Path) -> Iterator[Component]:
    """Yield CPython as its own binary names it, which no package does in Python's own images."""
    places = (root.rglob(one) for one in ("libpython3.*.so*", "bin/python3.*"))
    for path in (one for found in places for one in sorted(found) if one.is_file()):
        minor = re.search(r"3\.\d+", path.name)
        if minor and (version := re.search(rb"(" + minor[0].encode() + _PATCH, path.read_bytes())):
            number = version[1].decode()
            purl = f"pkg:generic/python@{quote(number)}"
            made = {"type": "application", "bom-ref": purl, "name": "python", "version": number}
            made |= {"purl": purl, "cpe": f"cpe:2.3:a:python:python:{number}:*:*:*:*:*:*:*"}
            yield {**made, "licenses": [{"license": {"id": "PSF-2.0"}}]}
            return


def document(name: str, folder: Path, report: Mapping[str, Any]) -> Component:
    """Return the document of a folder; ``name`` is the command of a plugin or the operator."""
    found = sorted(of_python(folder, report), key=lambda one: str(one["purl"]))
    known = {one["name"]: one for one in found}
    plugin = name.removesuffix("-device-plugin")
    own = known[name if plugin == name else f"deviceplugin-{plugin}"]
    needs = {name: {own["bom-ref"]}}
    for package in distributions(path=[str(folder)]):
        words = {
            _normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in package.requires or ()
        }
        asked = {known[one]["bom-ref"] for one in words & {*known}}
        needs[known[_normal(package.name)]["bom-ref"]] = asked
    image = {"type": "container", "bom-ref": name, "name": name, "version": own["version"]}
    return _sealed({"metadata": {"component": image}, "components": found}, needs)


def complete(inner: Component, root: Path) -> Component:
    """Return the document of an image's packages with what else there is at its ``root``."""
    debian = [*of_debian(root)]
    refs = {one["name"]: one["bom-ref"] for one, _ in debian}
    # Debian's CPython is among its packages, and has other fixes than its version says.
    own = any(re.fullmatch(r"(lib)?python3\.\d+-minimal", one) for one in refs)
    more = [*of_system(root), *(() if own else of_interpreter(root))]
    needs = {one["ref"]: {*one["dependsOn"]} for one in inner["dependencies"]}
    for one, names in debian:
        needs[one["bom-ref"]] = {refs[each] for each in names & {*refs}}
    needs[inner["metadata"]["component"]["bom-ref"]] |= {
        *refs.values(),
        *(x["bom-ref"] for x in more),
    }
    components = [*inner["components"], *more, *(one for one, _ in debian)]
    return _sealed({"metadata": inner["metadata"], "components": components}, needs)


def _sealed(content: Component, needs: Mapping[str, set[str]]) -> Component:
    """Return the document with its graph, and with a serial number that its content gives."""
    graph = [{"ref": ref, "dependsOn": sorted(needs[ref])} for ref in sorted(needs)]
    made = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, **content}
    made["dependencies"] = graph
    return {**made, "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, json.dumps(made))}"}


def _named(names: Iterable[str]) -> Component:
    found = [{"license": {"name": name}} for name in names]
    return {"licenses": found} if found else {}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def text_of(made: Component) -> str:
    """Return a document as it is written."""
    return json.dumps(made, indent=1) + "\n"


def main(argv: list[str]) -> str:
    """Return the output of the command."""
    name, folder, *reports = argv
    report = json.loads(Path(reports[0]).read_text(encoding="utf-8")) if reports else {}
    return text_of(document(name, Path(folder), report))


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
