"""One configuration for different nodes: by name, by label, and by what a plugin knows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typing_extensions import override

import deviceplugin as dp
from deviceplugin._app.node_labels import missing
from deviceplugin._config.loading import load
from deviceplugin._config.node_choice import NodeFacts, NodeLabels
from deviceplugin.kit.configuration import settings_schema

LABEL = "example.com/lamps"
FILE = """
colour: white
bright: true
nodes:
  - name: red
    colour: red
  - match: {node: ["stage-*", "big"]}
    bright: false
  - name: small
    match: {bulb: "*LED*"}
    colour: blue
  - match: {label: {zone: "a*"}, bulb: halogen}
    colour: green
"""


@dataclass(frozen=True, kw_only=True)
class LampSettings(dp.Settings):
    """Settings of lamps."""

    colour: str = ""
    bright: bool = True
    several: tuple[str, ...] = ()

    @classmethod
    @override
    def node_facts(cls) -> Mapping[str, Sequence[str]]:
        return {"bulb": BULBS}


BULBS: list[str] = []


@pytest.fixture(autouse=True)
def bulbs() -> Iterator[None]:
    yield
    BULBS.clear()


def chosen(path: Path, name: str = "n", *bulbs: str, **labels: str) -> LampSettings:
    """Return the settings for a node. ``lamps`` is the value of its label."""
    BULBS[:] = bulbs
    file = path.with_name("labels")
    file.write_text("".join(f'{LABEL if k == "lamps" else k}="{v}"\n' for k, v in labels.items()))
    flags = {"node-name": name, "node-labels-file": str(file), "node-label": LABEL}
    return load(LampSettings, flags=dict(flags), file=path, environ={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(FILE)
    return path


NONE = "none of nodes: none fits node"


@pytest.mark.parametrize(
    ("name", "bulbs", "labels", "expected"),
    [
        ("big", [], {"lamps": "red"}, (f"nodes[0] (red), by label {LABEL}=red", "red", True)),
        ("stage-7", ["LED"], {}, ("nodes[1], by node stage-7", "white", False)),
        ("n", ["old", "an LED"], {}, ("nodes[2] (small), by bulb an LED", "blue", True)),
        (
            "n",
            ["halogen"],
            {"zone": "ab"},
            ("nodes[3], by bulb halogen, label zone=ab", "green", True),
        ),
        ("n", ["x"], {"zone": "b"}, (f"{NONE} n, bulb: x, labels: zone=b", "white", True)),
        ("", [], {}, (f"{NONE} ?, bulb: none, labels: none", "white", True)),
    ],
)
def test_the_entry_that_is_for_the_node_is_taken_before_the_rest(
    file: Path,
    name: str,
    bulbs: list[str],
    labels: dict[str, str],
    expected: tuple[str, str, bool],
) -> None:
    found = chosen(file, name, *bulbs, **labels)
    assert expected == (found.node_choice, found.colour, found.bright)


DEFAULT = "nodes: [{name: default, colour: a}, {match: {node: b}, colour: c}]"


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (DEFAULT, "n", ("nodes[0] (default): none fits", "a")),
        (DEFAULT, "b", ("nodes[1], by node b", "c")),
        *((f"colour: a\n{text}", "n", ("", "a")) for text in ("nodes:", "", "nodes: []")),
        (
            "nodes: [{match: {node: '*'}, colour: a}]",
            "",
            (f"{NONE} ?, bulb: none, labels: none", ""),
        ),
    ],
)
def test_where_no_other_entry_fits_the_one_called_default_does(
    file: Path, text: str, name: str, expected: tuple[str, str]
) -> None:
    file.write_text(text)
    found = chosen(file, name)
    assert expected == (found.node_choice, found.colour)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: [{name: a, color: red}]", "1: nodes[0].color: unknown key: did you mean 'colour'"),
        ("nodes: [{name: a, nodes: []}]", "1: nodes[0].nodes: unknown key: "),
        ("nodes: [{colour: a}]", "1: nodes[0]: needs a name, or a match with some of node, bulb, "),
        ("nodes: [{match: {label: x}}]", "1: nodes[0].match.label: 'x' is not a mapping with keys"),
        ("nodes: [{match: {}}]", "1: nodes[0]: needs a name, or a match with some of"),
        ("nodes: [{match: {pod: x}}]", "1: nodes[0].match.pod: unknown key"),
        ("nodes: [{name: 5}]", "1: nodes[0].name: 5 is not a string: put it in quotes"),
        ("nodes: [a]", "1: nodes[0]: 'a' is not a mapping with keys"),
        ("nodes: {a: b}", "1: nodes: a mapping is not a list"),
        ("nodes: [{match: {node: n}, bright: maybe}]", "1: nodes[0].bright: 'maybe' is not one of"),
    ],
)
def test_what_is_wrong_names_the_entry(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(dp.ConfigError) as raised:
        chosen(file)
    (line,) = str(raised.value).splitlines()
    assert line.startswith(f"{file}:{expected}")


def test_a_label_that_names_nothing_is_an_error_with_what_there_is(file: Path) -> None:
    expected = rf"label {LABEL} of the node names 'smal', .*did you mean 'small'\? \(node n, bulb"
    with pytest.raises(dp.ConfigError, match=expected):
        chosen(file, lamps="smal")
    many = {f"label{n}": "x" for n in range(20)}
    with pytest.raises(dp.ConfigError, match=r"labels: 21 of them\)$"):
        chosen(file, lamps="none", **many)


def test_settings_of_ones_own_called_nodes_are_not_chosen_from(file: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class NodeSettings(dp.Settings):
        nodes: tuple[str, ...] = ()

    file.write_text("nodes: [a]")
    assert ("a",) == NodeSettings.of_file(file).nodes
    assert "array" == settings_schema(NodeSettings)["properties"]["nodes"]["type"]
    assert "object" == settings_schema(LampSettings)["properties"]["nodes"]["items"]["type"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory as the kubelet mounts a ConfigMap."""
    path = tmp_path / "mounted"
    (path / "..2026").mkdir(parents=True)
    (path / "..data").symlink_to("..2026")
    for name in ("default", "red.yaml", "a.example", "a.b"):
        (path / "..2026" / name).write_text(f"colour: {name[0]}\nnodes: [{{name: e}}]")
        (path / name).symlink_to(f"..data/{name}")
    return path


@pytest.mark.parametrize(
    ("name", "labels", "why"),
    [
        ("n", {}, f"default, without label {LABEL}"),
        ("n", {"lamps": "red"}, f"red.yaml, by label {LABEL}=red"),
        ("n", {"lamps": "red.yaml"}, f"red.yaml, by label {LABEL}=red.yaml"),
        ("a.b", {"lamps": ""}, "a.b, by node a.b"),
        ("a", {}, f"default, without label {LABEL}"),
    ],
)
def test_the_label_or_the_node_names_a_file_of_a_mounted_configmap(
    folder: Path, name: str, labels: dict[str, str], why: str
) -> None:
    found = chosen(folder, name, **labels)
    rest = "none of nodes: none fits"
    assert (why, rest, why[0]) == (*found.node_choice.split("; ")[:1], rest, found.colour)


def test_a_label_that_names_no_file_is_an_error(folder: Path) -> None:
    with pytest.raises(dp.ConfigError, match=r"names 'mps', .*known are a.b, a.example, default"):
        chosen(folder, lamps="mps")
    (folder / "default").unlink()
    expected = rf"has a.b, a.example, red.yaml: call one n, as .* by the label {LABEL} \(in node-la"
    with pytest.raises(dp.ConfigError, match=expected):
        chosen(folder)
    with pytest.raises(dp.ConfigError, match=r"call one as node-name says, .* that node-label nam"):
        LampSettings.of_file(folder)
    (folder / "default.toml").touch()
    expected = "default.toml, no other is for this node"
    assert expected == LampSettings.of_file(folder).node_choice
    (folder / "default.toml").unlink()
    for name in ("a.b", "a.example"):
        (folder / name).unlink()
    assert chosen(folder).node_choice.startswith("red.yaml, the only one; none of nodes")


def test_labels_are_read_as_the_downward_api_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "labels"
    labels = NodeLabels()
    assert {} == labels.read(None) == labels.read(path)
    path.write_text('a.b/c="x \\"y\\""\npool=plain\nodd line\nbroken="\\\n')
    expected = {"a.b/c": 'x "y"', "pool": "plain", "broken": '"\\'}
    assert expected == labels.read(path)
    path.unlink()
    assert expected == labels.read(path), "configurations of running pods must not change"
    path.write_text("")
    assert {} == labels.read(path), "they were taken away"
    path.unlink()
    path.mkdir()
    assert {} == labels.read(path)
    for wrong, problem in ((path, "Is a directory"), (Path("/dev/zero"), "not a regular file")):
        with pytest.raises(dp.ConfigError, match=f"^node-labels-file: {wrong}: {problem}$"):
            NodeLabels().read(wrong)
    assert "" == NodeFacts(labels={"": "a"}).wanted


def test_a_start_waits_a_while_for_a_file_that_is_to_come(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    flags = {"node-labels-file": f"{tmp_path}/there", "node-labels-wait": "1ms"}
    assert None is missing(LampSettings, {}) is missing(LampSettings, flags)
    flags["node-labels-file"] = f"{tmp_path}/absent"
    assert tmp_path / "absent" == missing(LampSettings, flags)
    long = f"{tmp_path}/{'x' * 300}"
    flags["node-labels-file"] = long
    assert missing(LampSettings, flags) is None
    for problem, given in ((f"^node-labels-file: {long}", tmp_path), (f"^{long}", Path(long))):
        with pytest.raises(dp.ConfigError, match=f"{problem}: File name too long$"):
            load(LampSettings, flags=flags if given == tmp_path else {}, file=given, environ={})
    flags["node-labels-file"] = "wrong"
    assert missing(LampSettings, flags) is None, "loading the settings reports it"


def test_what_was_chosen_cannot_be_set_but_be_read_again(file: Path) -> None:
    file.write_text("node-choice: nodes[0], by node n\n")
    assert "" == LampSettings.of_file(file).node_choice
    assert "" == load(LampSettings, flags={"node-choice": ""}, environ={}).node_choice
    with pytest.raises(dp.ConfigError, match=r"^--node-choice: 'x' cannot be set: "):
        load(LampSettings, flags={"node-choice": "x"}, environ={})
