"""The two files that people have are understood as they are; what is not is said with its place."""

import json
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin._config.loading import load
from deviceplugin_rdma import RdmaSettings
from deviceplugin_rdma.entries import DEFAULT, Entry, Selector
from deviceplugin_rdma.entry_lists import ENTRIES


def read(tmp_path: Path, document: object) -> RdmaSettings:
    path = tmp_path / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return RdmaSettings.of_file(path)


def fault(tmp_path: Path, document: object) -> str:
    with pytest.raises(dp.ConfigError) as raised:
        read(tmp_path, document)
    return str(raised.value).removeprefix(f"{tmp_path}/")


def nic(**keys: object) -> dict[str, object]:
    return {"resourceList": [{"resourceName": "nic"} | keys]}


def hca(**keys: object) -> dict[str, object]:
    return {"configList": [{"resourceName": "hca", "rdmaHcaMax": 10} | keys]}


def test_the_file_of_the_sriov_plugin_is_understood(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        {
            "resourceList": [
                {
                    "resourceName": "mlnx_sriov_rdma",
                    "resourcePrefix": "mellanox.com",
                    "deviceType": "netDevice",
                    "excludeTopology": True,
                    "selectors": [
                        {
                            "vendors": ["15b3"],
                            "devices": ["101E"],
                            "drivers": ["mlx5_core"],
                            "pfNames": ["ens1f0#0-3"],
                            "rootDevices": ["0000:3b:00.0"],
                            "pciaddresses": ["0000:3B:00.2"],
                            "linkTypes": ["ether"],
                            "acpiIndexes": [4, "5"],
                            "ddpProfiles": [],
                            "vdpaType": "",
                            "IsRdma": True,
                            "needVhostNet": False,
                        }
                    ],
                    "additionalInfo": {"*": {"token": 3}},
                },
                {"resourceName": "fec", "deviceType": "accelerator", "selectors": {}},
            ]
        },
    )
    first, second = settings.resources
    assert first == Entry(
        "mlnx_sriov_rdma",
        "mellanox.com",
        (
            Selector(
                vendors=("15b3",),
                devices=("101e",),
                drivers=("mlx5_core",),
                addresses=("0000:3b:00.2",),
                acpi_indexes=("4", "5"),
                pf_names=("ens1f0#0-3",),
                root_devices=("0000:3b:00.0",),
                link_types=("ether",),
                is_rdma=True,
            ),
        ),
        without_topology=True,
        extra={"*": {"token": "3"}},
    )
    assert ("accelerator", "intel.com/fec") == (second.kind, settings.resource(second))
    assert "mellanox.com/mlnx_sriov_rdma" == settings.resource(first)


def test_the_file_of_the_shared_plugin_is_understood(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        {
            "periodicUpdateInterval": 300,
            "configList": [
                {
                    "resourceName": "hca_a",
                    "rdmaHcaMax": 1000,
                    "selectors": {"vendors": ["15b3"], "deviceIDs": ["1017"]},
                },
                {"resourceName": "b", "resourcePrefix": "example.com", "devices": ["ib0", "ib1"]},
            ],
        },
    )
    a, b = settings.resources
    assert ("rdma/hca_a", 1000, True) == (settings.resource(a), a.shares, a.together)
    assert (Selector(vendors=("15b3",), devices=("1017",)),) == a.selectors
    assert ("example.com/b", 0) == (settings.resource(b), b.shares)
    assert (Selector(interfaces=("ib0", "ib1")),) == b.selectors


def test_a_file_without_lists_has_the_default(tmp_path: Path) -> None:
    printed = {"resources": ENTRIES.write(DEFAULT)}
    for document in ({}, "null", printed):
        assert DEFAULT == read(tmp_path, document).resources


@pytest.mark.parametrize("value", [None, []])
@pytest.mark.parametrize("key", ["resources", "resourceList", "configList"])
def test_an_empty_list_offers_nothing(tmp_path: Path, key: str, value: object) -> None:
    assert () == read(tmp_path, {key: value}).resources
    both = {**nic(), **hca(devices=["ib0"]), "log-level": "debug"}
    settings = read(tmp_path, {**both, key: value})
    left = {"resourceList": ["hca"], "configList": ["nic"]}.get(key, ["nic", "hca"])
    assert (left, "debug") == ([one.name for one in settings.resources], settings.log_level)


@pytest.mark.parametrize("text", ["[]", "null"])
def test_an_empty_list_overrides_that_of_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(nic()))
    for flags, environ in (({"resources": text}, {}), ({}, {"DP_RESOURCES": text})):
        assert () == load(RdmaSettings, flags=flags, file=path, environ=environ).resources
    with pytest.raises(dp.ConfigError, match="is empty: give a list, or leave it out"):
        load(RdmaSettings, flags={}, file=path, environ={"DP_RESOURCES": ""})


def test_all_that_the_sriov_operator_writes_as_null_is_absent(tmp_path: Path) -> None:
    keys = ENTRIES.schema["anyOf"][1]["items"].schema["properties"]
    names = [key for key in keys if key != "resourceName"]
    document = nic(**dict.fromkeys(names), SelectorObj=None)
    assert (Entry("nic"),) == read(tmp_path, document).resources
    inner = nic(
        selectors=[dict.fromkeys(("vendors", "pfNames", "IsRdma", "needVhostNet", "pKeys"))]
    )
    assert (Selector(),) == read(tmp_path, inner).resources[0].selectors
    assert {"*": {}} == read(tmp_path, nic(additionalInfo={"*": None})).resources[0].extra
    assert "unknown key" in fault(tmp_path, nic(SelectorObj={}))
    assert "unknown key" in fault(tmp_path, {**nic(), "resourcesList": None})


NOT_NUMBERS = "is not a name with numbers of its functions, as in ens1f0#0,2-7"


CHOOSES_NONE = "chooses no functions: give selectors, such as {vendors: [15b3]}"
ONE_USER = "vdpaType excludes isRdma and shares: a vDPA device has one user"
SUBS_ONLY = "sf: of auxiliary devices, only sub-functions have an id that lasts"
NO_PROFILES = "is not supported: sysfs does not have profiles; use pciAddresses or pfNames"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"deviceType": "disk"},
            ".deviceType: 'disk' is not one of netDevice, accelerator, auxNetDevice",
        ),
        ({"selectors": {"auxTypes": ["sf"]}}, ": auxTypes needs deviceType: auxNetDevice"),
        (
            {"deviceType": "auxNetDevice", "selectors": {"auxTypes": ["eth"]}},
            f".selectors.auxTypes[0]: 'eth' is not {SUBS_ONLY}",
        ),
        ({"shares": 2, "selectors": {"vdpaType": "vhost"}}, f": {ONE_USER}"),
        ({"selectors": [{}, {"vdpaType": "vhost", "isRdma": True}]}, f": {ONE_USER}"),
        ({"selectors": {"ddpProfiles": ["G"]}}, f".selectors.ddpProfiles: ['G'] {NO_PROFILES}"),
        (
            {"selectors": [{}, {"vdpaType": "vfio"}]},
            ".selectors[1].vdpaType: 'vfio' is not vhost or virtio",
        ),
        ({"selectors": {"pfNames": ["x#3-1"]}}, f".selectors.pfNames[0]: 'x#3-1' {NOT_NUMBERS}"),
        (
            {"selectors": {"vendors": ["0x15b3"]}},
            ".selectors.vendors[0]: '0x15b3' is not 4 hex digits, such as 15b3",
        ),
        (
            {"selectors": {"pciAddresses": ["3b:00.0"]}},
            ".selectors.pciAddresses[0]: '3b:00.0' is not a PCI address such as 0000:3b:00.0",
        ),
        ({"resourceName": "a b"}, ".resourceName: 'a b' is not a name of letters, digits, - and _"),
    ],
)
def test_what_cannot_be_used_is_said_with_its_place(
    tmp_path: Path, keys: dict[str, object], expected: str
) -> None:
    assert f"config.json:1: resourceList[0]{expected}" == fault(tmp_path, nic(**keys))


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, f": {CHOOSES_NONE}"),
        ({"selectors": {"vendors": []}}, f": {CHOOSES_NONE}"),
        (
            {"devices": ["ib0"], "selectors": {"vendors": ["15b3"]}},
            ": selectors and devices exclude each other: use selectors",
        ),
        (
            {"resourceName": "a-b", "devices": ["ib0"]},
            ".resourceName: 'a-b' is not a name of letters, digits and _",
        ),
    ],
)
def test_what_cannot_be_shared_is_said_with_its_place(
    tmp_path: Path, keys: dict[str, object], expected: str
) -> None:
    assert f"config.json:1: configList[0]{expected}" == fault(tmp_path, hca(**keys))


def test_what_is_wrong_elsewhere_is_said_too(tmp_path: Path) -> None:
    twice = {"resourceList": [{"resourceName": "a"}, {"resourceName": "a"}]}
    taken = "resourceList[1]: resourceName: 'a' is there already: use one entry for it"
    assert f"config.json:1: {taken}" == fault(tmp_path, twice)
    negative = "periodicUpdateInterval: -1 is not a whole number from 0"
    assert f"config.json:1: {negative}" == fault(tmp_path, {"periodicUpdateInterval": -1})
    unknown = "resourceLists: unknown key: did you mean 'resources'?"
    assert f"config.json:1: {unknown}" == fault(tmp_path, {"resourceLists": []})


def test_a_selector_beside_the_selectors_is_said_to_belong_there(tmp_path: Path) -> None:
    unknown, where = fault(tmp_path, nic(selectors={}, IsRDMA=True)).splitlines()
    assert "resourceList[0].IsRDMA: unknown key: " in unknown
    assert "config.json:1: resourceList[0].IsRDMA: belongs into selectors; " in where


def test_keys_of_the_peers_are_in_any_case(tmp_path: Path) -> None:
    keys = ("ResourceList", "ConfigList", "PeriodicUpdateInterval")
    found = read(tmp_path, dict(zip(keys, ([{"resourceName": "a"}], None, 60), strict=True)))
    assert ["a"] == [one.name for one in found.resources]
    twice = fault(tmp_path, {"resourceList": [], "ResourceList": []})
    assert "config.json:1: ResourceList: is the same key as resourceList: keep one" in twice


def test_the_routes_are_those_that_are_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tmp_path == RdmaSettings(proc_net_dir=tmp_path).routes_dir
    assert Path("/proc/net") == RdmaSettings().routes_dir
    monkeypatch.setattr("deviceplugin_rdma.settings._ROUTES", (tmp_path, Path("/proc/net")))
    assert tmp_path == RdmaSettings().routes_dir
