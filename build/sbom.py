"""Print the bill of materials of an image, as a CycloneDX 1.5 document.

    sbom.py NAME FOLDER [ROOT]

It has the Python packages in FOLDER and the Debian packages in the database of ROOT. The same
content gives the same document, because it has no date.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote


def of_python(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a component for each package that is installed in ``folder``."""
    for package in distributions(path=[str(folder)]):
        name = re.sub(r"[-_.]+", "-", package.name).lower()
        yield {
            "type": "library",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{quote(package.version)}",
            **licences(package),
        }


def licences(package: Distribution) -> dict[str, Any]:
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
    names = known or words[:1]
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def of_debian(root: Path) -> Iterator[dict[str, Any]]:
    """Yield a component for each Debian package in ``root``, if there are any."""
    database = root / "var/lib/dpkg"
    for path in (database / "status", *sorted((database / "status.d").glob("*"))):
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        for entry in text.split("\n\n"):
            fields = dict(re.findall(r"^([A-Za-z-]+): (.+)$", entry, re.MULTILINE))
            if "Package" in fields:
                name, version = fields["Package"], fields["Version"]
                place = f"pkg:deb/debian/{name}@{quote(version, safe='')}"
                yield {
                    "type": "library",
                    "name": name,
                    "version": version,
                    "purl": f"{place}?arch={fields['Architecture']}",
                }


def document(name: str, components: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the whole document; ``name`` is the command of a plugin or the operator."""
    found = sorted(components, key=lambda one: str(one["purl"]))
    own = {one["name"]: one["version"] for one in found}
    plugin = name.removesuffix("-device-plugin")
    version = own[name if plugin == name else f"deviceplugin-{plugin}"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": found,
    }


def main(argv: list[str]) -> str:
    """Return the output of the command."""
    name, folder, *roots = argv
    components = [*of_python(Path(folder))]
    for root in roots:
        components += of_debian(Path(root))
    return json.dumps(document(name, components), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]))
