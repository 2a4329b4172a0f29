"""Each key that objects and Helm values of Intel and AMD have is taken over, listed or refused."""

import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from deviceplugin._config.loading import load
from deviceplugin.kit.migration import Account, Workload
from deviceplugin.tools.agent import _sections
from deviceplugin_amd.migrate import chart, operator
from deviceplugin_fpga.migrate import names, plugin
from deviceplugin_fpga.resource_names import read_aliases
from deviceplugin_intelgpu.migrate import keys, peers
from migration.peers import differences

Path_ = tuple[str, ...]
UNKNOWN: Final = "unheardOf"
VALUES: Final[tuple[Any, ...]] = (
    *(True, False, None, 0, 1, 7, 5000, -1.5, "", "x", "none", "balanced", "all", "single"),
    *("split", "af", "region", "mixed", "0x56c0", "/srv/kubelet/device-plugins", "IfNotPresent"),
    *({}, {"a": "b"}, {"name": "x"}, {"enable": False}, [], [{"key": "a"}], [[1]], {5: 6}),
)


def _below(prefix: Path_, *tables: Sequence[str] | Mapping[str, Any]) -> list[Path_]:
    return [(*prefix, key) for table in tables for key in table]


FORMS: Final[Mapping[str, tuple[dict[str, Any], list[Path_]]]] = {
    "GpuDevicePlugin": (
        {"apiVersion": "deviceplugin.intel.com/v1", "kind": "GpuDevicePlugin"},
        _below(("spec",), peers.SPEC, keys.UNUSED),
    ),
    "NpuDevicePlugin": (
        {"apiVersion": "deviceplugin.intel.com/v1", "kind": "NpuDevicePlugin"},
        _below(("spec",), ("sharedDevNum", "logLevel"), keys.UNUSED),
    ),
    "Intel's chart": (
        {"allocationPolicy": "none"},
        _below((), peers.VALUES, keys.UNUSED, keys.OF_CHART),
    ),
    "FpgaDevicePlugin": (
        {"apiVersion": "deviceplugin.intel.com/v1", "kind": "FpgaDevicePlugin"},
        _below(("spec",), plugin.SPEC, plugin.UNUSED),
    ),
    "AMD's chart": (
        {"dp": {"image": {"tag": "1"}}},
        [*chart.DROPPED, *chart.SWITCHES, *chart.OTHERS],
    ),
    "DeviceConfig": (
        {"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "metadata": {"name": "a"}},
        [
            *_below(("spec", "devicePlugin"), operator.PLUGIN),
            *_below(("spec",), operator.STAYS, ("selector",)),
        ],
    ),
    "AMD's operator's chart": (
        {"deviceConfig": {"spec": {}}},
        [
            *_below(("deviceConfig", "spec", "devicePlugin"), operator.PLUGIN),
            *_below((), operator.VALUES),
        ],
    ),
}


def run(path: Path, *documents: Any) -> tuple[int, str, list[str]]:
    """Return status, output and error lines of a migration."""
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["migrate", str(path)])
    return status, out.getvalue(), err.getvalue().splitlines()


def with_values(document: dict[str, Any], given_: Mapping[Path_, Any]) -> dict[str, Any]:
    """Return a document with more values; what is above one wins over it."""
    made: dict[str, Any] = json.loads(json.dumps(document))
    for path, value in sorted(given_.items(), key=lambda one: len(one[0])):
        inner = made
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                break
        else:
            inner[path[-1]] = value
    return made


def _config_maps(overlay: str) -> dict[str, str]:
    found = {}
    for one in yaml.safe_load(overlay)["patches"]:
        if one["target"]["kind"] == "ConfigMap":
            (change,) = yaml.safe_load(one["patch"])
            value = change["value"]
            text = value if isinstance(value, str) else next(iter(value.values()))
            found[one["target"]["name"]] = text
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for manifests."""
    return tmp_path_factory.mktemp("account")


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=10)
@given(data=st.data())
def test_known_keys_are_understood_and_unknown_ones_are_named(
    folder: Path, form: str, data: st.DataObject
) -> None:
    document, paths = FORMS[form]
    chosen = data.draw(st.dictionaries(st.sampled_from(paths), st.sampled_from(VALUES), max_size=3))
    # The fields of a security context have a table of their own.
    chosen = {
        path: one for path, one in chosen.items() if path != ("securityContext",) or one is True
    }
    unknown = data.draw(st.sampled_from([None, (UNKNOWN,), (*paths[0][:-1], UNKNOWN)]))
    if unknown:
        chosen[unknown] = "x"
    status, out, lines = run(folder / "in.yaml", with_values(document, chosen))
    missed = [line for line in lines if "not understood" in line]
    if missed:
        assert unknown is not None
        assert [f"{'.'.join(unknown)}: not understood"] == [one.split(": ", 3)[3] for one in missed]
    elif lines:
        assert all(line.startswith("deviceplugin migrate: ") for line in lines)
    assert (status == 2) == bool(lines) == (not out)
    if out:
        assert unknown is None
        (folder / "config.yaml").write_text(_config_maps(out)["config"])
        name = yaml.safe_load(out)["namespace"].removesuffix("-device-plugin")
        load(_sections.hosted(name).settings, flags={}, file=folder / "config.yaml", environ={})


@pytest.mark.parametrize(
    "spec",
    [{"chart": {"spec": {"chart": "intel-device-plugins-gpu"}}}, {"source": {"chart": "i915"}}],
)
def test_what_installs_one_of_intels_charts_says_which(spec: dict[str, Any]) -> None:
    values = {"sharedDevNum": 4, "nodeFeatureRule": True}
    account = Account(
        [("peer.yaml", {"metadata": {"name": "x"}, "spec": spec | {"values": values}})]
    )
    root = (0, "spec", "values")
    found = peers.recognized(Workload(place="x", values=values, account=account, root=root))
    assert "gpu" == (found and found.plugin)


NAMES: Final = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(sorted(names.FIELDS)),
        "name": st.sampled_from(["a", "b.c", "1e3", "af-x", "region", "x" * 64, "A_", "null"]),
        "interfaceId": st.sampled_from(["0" * 32, "12345678" * 4, "0e1" * 10 + "00", "f" * 32]),
        "afuId": st.sampled_from(["0" * 32, "9" * 32, "1" * 40]),
        "mode": st.sampled_from(["af", "region", "regiondevel", "x"]),
    }
)


@settings(max_examples=15)
@given(mode=st.sampled_from(["af", "region", "regiondevel"]), given_=st.lists(NAMES, max_size=6))
def test_each_name_of_the_webhook_is_one_of_ours_or_is_listed(
    folder: Path, mode: str, given_: list[dict[str, str]]
) -> None:
    objects = [
        {
            "apiVersion": "fpga.intel.com/v2",
            "kind": one["kind"],
            "metadata": {"name": one["name"]},
            "spec": {field: one[field] for field in names.FIELDS[one["kind"]]},
        }
        for one in given_
    ]
    document = FORMS["FpgaDevicePlugin"][0] | {"spec": {"mode": mode}}
    status, out, lines = run(folder / "in.yaml", *objects, document)
    assert (0, []) == (status, lines)
    aliases = folder / "aliases.yaml"
    aliases.write_text(_config_maps(out).get("aliases", "aliases: []"))
    taken = {*read_aliases(aliases).names.values()}
    said = [one.partition(": ") for one in differences(out)]
    taken |= {json.loads(how)["metadata"]["name"] for what, _, how in said if what == "FpgaName"}
    listed = {one for what, _, _ in said for one in what.removeprefix("names ").split(", ")}
    assert {one["name"] for one in given_} <= taken | listed
    assert taken <= {one["name"] for one in given_}
