"""Helm values: the ways in which they are given, and every key of them."""

import io
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from deviceplugin.kit.migration import Account, Workload
from deviceplugin_cli.migrate.charts._layers import assign, steps, typed
from deviceplugin_intelgpu.migrate import peers
from migration.releases import APP_TEMPLATE, application, helm_release

NVIDIA: Final[Mapping[str, tuple[Any, ...]]] = {
    "migStrategy": ("none", "single", "mixed"),
    "deviceIDStrategy": ("uuid", "index"),
    "failOnInitError": (True, False),
    "compatWithCPUManager": (True, False),
    "runtimeClassName": ("nvidia", "other"),
}
LAYER: Final = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from(values) for key, values in NVIDIA.items()}
)
FREE: Final = {
    *("annotations", "data", "env", "liveness", "nodeSelector", "resources", "securityContext"),
    *("tolerations", "volumeSpec"),
}
"""Keys below which a chart takes anything, or whose keys others judge."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file for the input."""
    return tmp_path_factory.mktemp("values") / "release.yaml"


def migrated(file: Path, *documents: object) -> tuple[int, str, str]:
    """Return the status, what was printed without comments, and the errors."""
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["migrate", str(file)])
    lines = [line for line in out.getvalue().splitlines() if not line.startswith("#")]
    return status, "\n".join(lines), err.getvalue()


@pytest.mark.slow
@settings(max_examples=8)
@given(layers=st.lists(LAYER, min_size=3, max_size=3))
def test_values_of_several_places_are_merged_as_the_tools_do(
    file: Path, layers: list[dict[str, Any]]
) -> None:
    first, second, last = layers
    chart = "nvidia-device-plugin"
    wanted = migrated(file, helm_release(chart, {**first, **second, **last}))
    assert 0 == wanted[0]
    config_maps = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"values.yaml": yaml.safe_dump(content)},
        }
        for name, content in (("first", first), ("second", second))
    ]
    names = [{"kind": "ConfigMap", "name": one} for one in ("first", "second")]
    assert wanted == migrated(file, helm_release(chart, last, valuesFrom=names), *config_maps)
    assert wanted == migrated(
        file,
        application(
            chart,
            valueFiles=[file.name],
            valuesObject=second,
            parameters=[
                {"name": name, "value": str(value).lower()} for name, value in last.items()
            ],
        ),
        first or {"migStrategy": None},
    )


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all mappings of which a chart has to know the keys."""
    if isinstance(content, dict):
        yield path
    inner = content.items() if isinstance(content, dict) else ()
    for key, one in enumerate(content) if isinstance(content, list) else inner:
        if key not in FREE:
            yield from places(one, (*path, key))


KNOWN: Final = sorted(places(APP_TEMPLATE), key=str)


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: ".".join(map(str, path)) or "top")
def test_a_key_that_a_chart_does_not_have_is_named(file: Path, path: tuple[Any, ...]) -> None:
    content = yaml.safe_load(yaml.safe_dump(APP_TEMPLATE))
    assign(content, (*path, "zzz"), "x")
    status, _, err = migrated(file, helm_release("app-template", content))
    assert 2 == status
    assert "zzz: not understood" in err


def test_each_key_of_the_values_is_understood(file: Path) -> None:
    assert (0, "") == migrated(file, helm_release("app-template", APP_TEMPLATE))[::2]


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


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("a.b[1].c", ("a", "b", 1, "c")),
        (r"nodeSelector.nvidia\.com/gpu", ("nodeSelector", "nvidia.com/gpu")),
        ("a[0][1]", ("a", 0, 1)),
    ],
)
def test_a_name_of_set_is_keys_and_indexes(name: str, path: tuple[Any, ...]) -> None:
    assert path == steps(name)
    content: Any = {}
    assign(content, path, 1)
    for step in path:
        content = content[step]
    assert 1 == content


@pytest.mark.parametrize("name", ["", "[0]", "a[x]", "a\\"])
def test_what_is_not_a_name_of_set_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="is not a name as of --set"):
        steps(name)


@pytest.mark.parametrize("path", [("a", "b"), ("a", 0), ("b", 5000)])
def test_a_value_cannot_be_below_another(path: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="is below something that is no mapping or list"):
        assign({"a": "x"}, path, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("null", None), ("12", 12), ("012", "012"), ("-3", -3)),
        *(("a", "a"), ("{a, 2}", ["a", 2]), ("{}", []), ("", "")),
    ],
)
def test_a_value_of_set_has_a_type(text: str, value: object) -> None:
    assert value == typed(text)
