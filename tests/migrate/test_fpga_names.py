"""Names that Intel's webhook gives to what is in FPGAs become ours, or are listed."""

import io
import json
from contextlib import redirect_stdout
from typing import Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from deviceplugin_fpga.migrate import names
from deviceplugin_fpga.resource_names import read_aliases
from migration.peers import differences


def _config_maps(overlay: str) -> dict[str, str]:
    found = {}
    for one in yaml.safe_load(overlay)["patches"]:
        if one["target"]["kind"] == "ConfigMap":
            (change,) = yaml.safe_load(one["patch"])
            value = change["value"]
            text = value if isinstance(value, str) else next(iter(value.values()))
            found[one["target"]["name"]] = text
    return found


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
    tmp_path_factory: pytest.TempPathFactory, mode: str, given_: list[dict[str, str]]
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
    document = {
        "apiVersion": "deviceplugin.intel.com/v1",
        "kind": "FpgaDevicePlugin",
        "spec": {"mode": mode},
    }
    folder = tmp_path_factory.mktemp("names")
    (folder / "in.yaml").write_text(yaml.safe_dump_all([*objects, document]), encoding="utf-8")
    with redirect_stdout(io.StringIO()) as printed:
        assert 0 == main(["migrate", str(folder / "in.yaml")])
    out = printed.getvalue()
    aliases = folder / "aliases.yaml"
    aliases.write_text(_config_maps(out).get("aliases", "aliases: []"))
    taken = {*read_aliases(aliases).names.values()}
    said = [one.partition(": ") for one in differences(out)]
    taken |= {json.loads(how)["metadata"]["name"] for what, _, how in said if what == "FpgaName"}
    listed = {one for what, _, _ in said for one in what.removeprefix("names ").split(", ")}
    assert {one["name"] for one in given_} <= taken | listed
    assert taken <= {one["name"] for one in given_}
