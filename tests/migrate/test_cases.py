"""Inputs in the forms that people have, each with what becomes of it.

A case is a file of ``cases/``: the input as it is, below a comment. After the line ``# expect:``
the comment is YAML:

    flags       of the command
    status      of the command; 0 if it is not given
    plugin      the folder of our plugin
    config      the whole of its config.yaml
    components  of the overlay, without their folder
    files       the data of the other ConfigMaps, by name
    patch       what is changed of our DaemonSet: the whole of its spec
    said        parts of the differences
    error       parts of what is printed if the status is not 0
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deviceplugin.__main__ import main

CASES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))
KEYS = {"flags", "status", "plugin", "config", "components", "files", "patch", "said", "error"}


def expected(text: str) -> dict[str, Any]:
    """Return what the comment at the top of a case expects."""
    lines = text.splitlines()
    start = lines.index("# expect:") + 1
    end = next(i for i, line in enumerate(lines) if i >= start and not line.startswith("#"))
    found: dict[str, Any] = yaml.safe_load("\n".join(line[2:] for line in lines[start:end]))
    assert found.keys() <= KEYS
    return found


def files(overlay: Any) -> dict[str, dict[str, str]]:
    """Return the data of the ConfigMaps that an overlay patches."""
    found: dict[str, dict[str, str]] = {}
    for one in overlay["patches"]:
        if one["target"]["kind"] == "ConfigMap":
            for change in yaml.safe_load(one["patch"]):
                key = change["path"].removeprefix("/data").removeprefix("/")
                data = {key: change["value"]} if key else change["value"]
                found.setdefault(one["target"]["name"], {}).update(data)
    return found


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_case(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = expected(path.read_text(encoding="utf-8"))
    status = main(["migrate", str(path), *wanted.get("flags", [])])
    out, err = capsys.readouterr()
    assert wanted.get("status", 0) == status, err
    for part in wanted.get("error", []):
        assert part in err
    said = " ".join(line.removeprefix("#").strip() for line in out.splitlines())
    for part in wanted.get("said", []):
        assert part in said
    if "plugin" not in wanted:
        assert "error" in wanted
        return
    overlay = yaml.safe_load(out)
    data = files(overlay)
    assert f"{wanted['plugin']}-device-plugin" == overlay["namespace"]
    assert wanted["config"] == yaml.safe_load(data.pop("config")["config.yaml"])
    assert wanted.get("components", []) == [Path(one).name for one in overlay.get("components", [])]
    assert wanted.get("files", {}) == data
    if "patch" in wanted:
        changed = (one for one in overlay["patches"] if one["target"]["kind"] == "DaemonSet")
        assert wanted["patch"] == yaml.safe_load(next(changed)["patch"])["spec"]


def test_every_case_says_what_it_is() -> None:
    for path in CASES:
        first = path.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith("# "), path
