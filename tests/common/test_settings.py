import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deviceplugin import ConfigError, Settings
from deviceplugin._config.documents.faults import bounded, suggestion
from deviceplugin._config.kinds.kind import MOST_ENTRIES
from deviceplugin._config.loading import config_file, key, load
from deviceplugin._config.settings import dump
from deviceplugin._config.settings_class import check, helps
from deviceplugin._config.variables import hidden_variables, suspicious_variables
from deviceplugin.kit.configuration import (
    EntrySettings,
    Kind,
    Place,
    duration,
    list_of,
    name,
    needed,
    record,
)


@dataclass(frozen=True, kw_only=True)
class OwnSettings(Settings):
    """Settings as an author writes them."""

    serial: str
    """Which one. Needed."""
    shared: bool = False
    """Whether it is shared."""
    paths: tuple[Path, ...] = ()
    """Where to look: 100 % of it,
    on several lines."""
    ports: tuple[int, ...] = field(default_factory=lambda: (1, 2))
    silent: int = 0

    def method(self) -> None:
        """No field."""


NAMES = [key(field) for field in fields(Settings)]
KNOWN = f"unknown key: known are {', '.join(NAMES)}"


def read(tmp_path: Path, text: str = "", *, name: str = "config.yaml", **flags: str) -> OwnSettings:
    file = tmp_path / name
    file.write_text(text)
    return load(OwnSettings, flags={"serial": "s1", **flags}, file=file, environ={})


def problem(
    settings: type[Settings] = Settings,
    *,
    flags: Mapping[str, str | list[str]] | None = None,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    with pytest.raises(ConfigError) as raised:
        load(settings, flags=flags or {}, file=file, environ=environ or {})
    return str(raised.value)


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "DP_LOG_LEVEL", "error")
    monkeypatch.setitem(os.environ, "DP_LOG_LEVLE", "error")
    monkeypatch.setitem(os.environ, "DP_SERVICE_PORT", "tcp://1.2.3.4:80")
    assert "error" == load(Settings, flags={}).log_level
    assert {"DP_LOG_LEVLE": "DP_LOG_LEVEL"} == suspicious_variables(Settings)
    assert {"DP_LOG_LEVEL": "--log-level"} == hidden_variables(Settings, {"log-level": "info"})
    assert {} == suspicious_variables(Settings, {"LOG_LEVLE": "info"})
    assert Settings() == load(Settings, flags={}, environ={})


@pytest.mark.parametrize(
    ("sources", "level"),
    [("fev", "debug"), ("ev", "info"), ("v", "warning"), ("f", "debug"), ("fv", "debug")],
)
def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, sources: str, level: str
) -> None:
    file = tmp_path / "config.toml"
    file.write_text('log-level = "warning"\n' if "v" in sources else "")
    settings = load(
        Settings,
        flags={"log-level": "debug"} if "f" in sources else {},
        environ={"DP_LOG_LEVEL": "info"} if "e" in sources else {},
        file=file,
    )
    assert level == settings.log_level


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.toml", 'shared = true\npaths = ["/a", "/b"]\nports = [3]\npoll-interval = "7s"\n'),
        ("c.json", '{"shared": true, "paths": ["/a", "/b"], "ports": [3], "poll-interval": "7s"}'),
        ("c.yaml", "shared: true\npaths: [/a, /b]\nports:\n- 3\npoll-interval: 7s\n"),
        ("c.yml", "shared: yes\npaths: /a,/b\nports: '3'\npoll-interval: 7s\n"),
        ("config", "shared: on\npaths: /a, /b\nports: ['3']\npoll-interval: 7s\n"),
    ],
)
def test_a_file_may_be_toml_json_or_yaml(tmp_path: Path, name: str, text: str) -> None:
    expected = OwnSettings(
        serial="s1",
        shared=True,
        paths=(Path("/a"), Path("/b")),
        ports=(3,),
        poll_interval=timedelta(seconds=7),
    )
    assert expected == read(tmp_path, text, name=name)


def test_a_field_without_a_default_is_needed() -> None:
    assert "--serial (or DP_SERIAL) is needed" == problem(OwnSettings)
    assert "s2" == load(OwnSettings, flags={}, environ={"DP_SERIAL": "s2"}).serial


def test_an_unknown_key_is_told_with_the_nearest_known_one(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"plugin_dir": "/x", "log-levle": "info", "zzz": 1}))
    assert [
        f"{file}:1: plugin_dir: unknown key: did you mean 'plugin-dir'?",
        f"{file}:1: log-levle: unknown key: did you mean 'log-level'?",
        f"{file}:1: zzz: {bounded(KNOWN)}",
    ] == problem(file=file).splitlines()


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("serail: s1\nhttp-address: 8080\n")
    assert {
        f"{file}:1: serail: unknown key: did you mean 'serial'?",
        f"{file}:2: http-address: 8080 is not of the form host:port or :port, or off",
        "--serial (or DP_SERIAL) is needed",
        "environment variable DP_SHARED: 'maybe' is not one of true, yes, on, 1, false, no, off, 0",
    } == set(problem(OwnSettings, file=file, environ={"DP_SHARED": "maybe"}).splitlines())


def test_without_pyyaml_the_other_forms_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "deviceplugin._config.documents.yaml_nodes", None)
    (tmp_path / "c.yaml").write_text("a: 1\n")
    expected = (
        f"{tmp_path}/c.yaml: reading YAML needs PyYAML: pip install pyyaml, or write "
        "the file as .toml or .json"
    )
    assert expected == problem(file=tmp_path / "c.yaml")
    (tmp_path / "c.json").write_text('{"log-level": "debug"}')
    assert "debug" == Settings.of_file(tmp_path / "c.json").log_level
    expected = "--sensors: reading YAML needs PyYAML: "
    assert problem(SensorSettings, flags={"sensors": "[]"}).startswith(expected)


def test_what_is_dumped_can_be_read_again(tmp_path: Path) -> None:
    settings = OwnSettings(
        serial="7", shared=True, paths=(Path("/a"),), poll_interval=timedelta(seconds=90)
    )
    dumped = dump(settings)
    assert ("1m30s", ["/a"], [1, 2]) == (dumped["poll-interval"], dumped["paths"], dumped["ports"])
    assert settings == read(tmp_path, json.dumps(dumped), name="config.json", serial="7")


def test_the_help_of_a_field_is_the_text_below_it_on_one_line() -> None:
    texts = helps(OwnSettings)
    assert "Which one. Needed." == texts["serial"]
    assert "Where to look: 100 % of it, on several lines." == texts["paths"]
    assert [*NAMES, "serial", "shared", "paths"] == list(texts)
    assert [] == [name for name, text in texts.items() if name in NAMES and text[-1] != "."]
    space: dict[str, Any] = {"Settings": Settings, "dataclass": dataclass, "__name__": "nowhere"}
    exec("@dataclass(frozen=True)\nclass Made(Settings):\n    x: int = 1\n    'Help.'\n", space)
    assert NAMES == list(helps(space["Made"])), "without its source it has none of its own"


def test_values_that_do_not_go_together_are_a_configuration_error() -> None:
    @dataclass(frozen=True, kw_only=True)
    class PairSettings(Settings):
        low: int = 1
        high: int = 2

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low {self.low} is above high {self.high}")

    with pytest.raises(ConfigError, match=r"^low 3 is above high 2$"):
        load(PairSettings, flags={"low": "3"}, environ={})


def test_the_environment_may_name_the_file() -> None:
    assert Path("/etc/p.toml") == config_file({"DP_CONFIG": "/etc/p.toml"})
    assert None is config_file({"DP_CONFIG": ""})
    assert None is config_file({})


@dataclass(frozen=True)
class Words:
    """A kind of its own."""

    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: Any) -> "Words":
        words = tuple(value.split() if isinstance(value, str) else value)
        if bad := [word for word in words if not word.isalpha()]:
            raise ConfigError("\n".join(f"{word!r} is no word" for word in bad))
        return cls(words)

    def write(self) -> list[str]:
        return list(self.words)


@dataclass(frozen=True, kw_only=True)
class WordSettings(Settings):
    words: Words = Words()

    @classmethod
    def from_file(cls, root: Place) -> Mapping[str, object]:
        return {"words": " ".join(place.raw for place in root.items())}


def test_a_kind_of_a_plugins_own_gets_what_was_found_and_writes_itself(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("[from, file]")
    environ = {"DP_WORDS": "from environment"}
    found = load(WordSettings, flags={"words": ["x", "y"]}, environ=environ, file=file)
    assert Words(("x", "y")) == found.words
    assert ["x", "y"] == dump(found)["words"]
    assert Words(("from", "environment")) == load(WordSettings, flags={}, environ=environ).words
    assert Words(("from", "file")) == load(WordSettings, flags={}, environ={}, file=file).words
    file.write_text("words: 5\n")
    assert f"{file}:1: a mapping is not a list" == problem(WordSettings, file=file)


def test_a_wrong_value_is_told_with_where_it_stands(tmp_path: Path) -> None:
    levels = "is not one of debug, info, warning, error"
    file = tmp_path / "config.yaml"
    file.write_text("log-level: loud\n")
    assert f"{file}:1: log-level: 'loud' {levels}" == problem(file=file)
    environ = {"DP_LOG_LEVEL": "loud"}
    expected = f"environment variable DP_LOG_LEVEL: 'loud' {levels}"
    assert expected == problem(file=file, environ=environ)
    flags = {"log-level": ""}
    assert f"--log-level: '' {levels}" == problem(file=file, environ=environ, flags=flags)
    file.write_text("- log-level\n")
    expected = f"{file}:1: must have keys and values, as in 'log-level: debug'"
    assert expected == problem(file=file)
    expected = f"{tmp_path / 'none'}: No such file or directory"
    assert expected == problem(file=tmp_path / "none")


def test_all_that_a_kind_of_a_plugins_own_complains_of_is_told_with_its_place(
    tmp_path: Path,
) -> None:
    plain = made("Plain", ("words", Words, Words()))
    expected = "--words: '1' is no word\n--words: '2' is no word"
    assert expected == problem(WordSettings, flags={"words": ["a", "1", "2"]})
    file = tmp_path / "c.yaml"
    file.write_text("\nwords: a 1 2\n")
    lines = [f"{file}:2: words: '1' is no word", f"{file}:2: words: '2' is no word"]
    assert lines == problem(plain, file=file).splitlines()


@dataclass(frozen=True, kw_only=True)
class NamedSettings(Settings):
    """With texts that may be empty and texts that may not."""

    needed: str
    named: str = field(default="a.b/c", metadata={"env": ("NAMED", "CALLED")})
    prefix: str = ""
    place: Path | None = Path("/etc")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind: ConfigMap\ndata: {c.yaml: x}", "a ConfigMap: its file is data['c.yaml']; "),
        ("kind: HelmRelease\ndata: 3", "a HelmRelease: its file is in a ConfigMap of it, or in "),
        ("kind: 7\ndata: {}\n---\napiVersion: v1\nkind: List", "a 7: its file is in a ConfigMap"),
        ("kind: A\ndata: {}\n---\n- {}", "a A: its file is in a ConfigMap"),
    ],
)
def test_an_object_of_kubernetes_is_named_for_what_it_is(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"apiVersion: v1\n{text}\n")
    with pytest.raises(ConfigError) as raised:
        Settings.of_file(file)
    assert [f"{file}:1: is a Kubernetes object, {told}"] == [
        line[: len(f"{file}:1: is a Kubernetes object, {told}")]
        for line in str(raised.value).splitlines()
    ]


def test_a_name_in_another_case_is_suggested() -> None:
    assert "did you mean 'log-level'?" == suggestion("LOG-LEVEL", NAMES)
    assert "did you mean 'Label'?" == suggestion("LABEL", ["Label", "table"])


LAMP: Kind[object] = record(dict, {"name": needed(name()), "watts": list_of(name())})


def _two_lamps(found: Sequence[tuple[Place, object]]) -> None:
    for place, _ in found[2:]:
        place.fault("is one too many")


@dataclass(frozen=True, kw_only=True)
class LampSettings(EntrySettings):
    lamps: tuple[object, ...] = field(
        default=(),
        metadata={
            "kind": list_of(LAMP, nullable=True, together=_two_lamps, instead=lambda _, why: why)
        },
    )


A_LAMP = {"name": "a"}


@pytest.mark.parametrize("by", ["flag", "variable", "file"])
@pytest.mark.parametrize(
    ("lamps", "read"),
    [
        ("[{name: a}, {nmae: b}]", (A_LAMP, "lamps[1].nmae: unknown key: did you mean 'name'?; ")),
        ("[{name: a, name: a}, {name: a}]", ("lamps[0].name: given twice", A_LAMP)),
        ("[{name: a}, 7, {name: a}]", (A_LAMP, "lamps[1]: 7 is not a mapping with keys", A_LAMP)),
        ("[{name: a}, {name: a}, {name: a}]", (A_LAMP, A_LAMP, "lamps[2]: is one too many")),
        ("null", ()),
    ],
)
def test_wrong_entries_are_skipped_only_where_that_is_wanted(
    tmp_path: Path, by: str, lamps: str, read: tuple[object, ...]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"lamps: {lamps}" if by == "file" else "")
    flags = {"lamps": lamps} if by == "flag" else {}
    environ = {"DP_LAMPS": lamps} if by == "variable" else {}

    def lamps_of(choice: str, *, lenient: bool) -> list[str]:
        given = {**flags, "on-invalid-entry": choice}
        made = load(LampSettings, flags=given, file=file, environ=environ, lenient=lenient)
        assert () == made.invalid_entries, "a plugin says them itself"
        return [*map(str, made.lamps)]

    found = lamps_of("skip", lenient=True)
    for expected, one in zip(read, found, strict=True):
        known = str(expected).removeprefix("lamps") if by != "file" else str(expected)
        assert known in one
    for choice, lenient in (("fail", True), ("skip", False)):
        if all(isinstance(one, dict) for one in read):
            assert found == lamps_of(choice, lenient=lenient)
        else:
            with pytest.raises(ConfigError):
                lamps_of(choice, lenient=lenient)


@pytest.mark.parametrize("by", ["flag", "file"])
def test_more_entries_than_can_be_resources_are_an_error_and_are_not_read(
    tmp_path: Path, by: str
) -> None:
    file, lamps = tmp_path / "c.yaml", f"[{', '.join(['7'] * (MOST_ENTRIES + 1))}]"
    file.write_text(f"lamps: {lamps}" if by == "file" else "")
    flags = {"on-invalid-entry": "skip", **({"lamps": lamps} if by == "flag" else {})}
    with pytest.raises(ConfigError) as raised:
        load(LampSettings, flags=flags, file=file, environ={}, lenient=True)
    assert str(raised.value).endswith("[5000]: is one of 5001: 5000 are the most")


def test_a_file_that_is_wrong_besides_its_entries_has_one_error_with_all(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("lamps: [7]\npoll-interval: x\n")
    flags = {"on-invalid-entry": "skip"}
    for lenient, count in ((True, 1), (False, 2)):
        with pytest.raises(ConfigError) as raised:
            load(LampSettings, flags=flags, file=file, environ={}, lenient=lenient)
        assert count == len(str(raised.value).splitlines())


def test_a_text_may_be_empty_if_its_default_is() -> None:
    expected = "'' is empty: give a value, or leave it out for 'a.b/c'"
    needed = {"needed": "x"}
    assert f"--named: {expected}" == problem(NamedSettings, flags={**needed, "named": ""})
    told = problem(NamedSettings, flags=needed, environ={"NAMED": ""})
    assert f"environment variable NAMED: {expected}" == told
    assert "--needed: '' is empty: give a value" == problem(NamedSettings, flags={"needed": ""})
    flags = {**needed, "prefix": "", "place": ""}
    found = load(NamedSettings, flags=flags, environ={"NAMED": "b", "CALLED": "c"})
    assert ("", None, "b") == (found.prefix, found.place, found.named)


@pytest.mark.parametrize(
    ("flags", "environ", "hidden"),
    [
        ({"named": "a"}, {"DP_NAMED": "b"}, {"DP_NAMED": "--named"}),
        ({"named": "a"}, {"NAMED": "b", "CALLED": "c"}, {"NAMED": "--named", "CALLED": "--named"}),
        ({}, {"DP_NAMED": "a", "NAMED": "b"}, {"NAMED": "DP_NAMED"}),
        ({"named": "a"}, {"DP_NAMED": "a"}, {}),
        ({"config": Path("/a")}, {"DP_CONFIG": "/b"}, {"DP_CONFIG": "--config"}),
        ({"config": Path("/a")}, {"DP_CONFIG": "/a"}, {}),
        ({"config": None}, {"DP_CONFIG": "/a"}, {}),
        ({"named": "a"}, {"DP_NAMED": ""}, {}),
        ({}, {"DP_NAMED": "a"}, {}),
        ({"poll-interval": "30s"}, {"DP_POLL_INTERVAL": "0.5m"}, {}),
        (
            {"poll-interval": "30s"},
            {"DP_POLL_INTERVAL": "30"},
            {"DP_POLL_INTERVAL": "--poll-interval"},
        ),
    ],
)
def test_a_variable_that_is_set_to_no_effect_is_found(
    flags: dict[str, Any], environ: dict[str, str], hidden: dict[str, str]
) -> None:
    assert hidden == hidden_variables(NamedSettings, flags, environ)


@dataclass(frozen=True)
class Sensor:
    """Something of a record."""

    name: str
    every: timedelta = timedelta(seconds=1)


SENSORS = list_of(record(Sensor, {"name": needed(name()), "every": duration()}))


@dataclass(frozen=True, kw_only=True)
class SensorSettings(Settings):
    """With a setting of a kind."""

    sensors: tuple[Sensor, ...] = field(default=(), metadata={"kind": SENSORS})


NAME = "is not a name of 1 to 63 lower-case letters, digits and hyphens"


def test_a_setting_may_be_of_a_kind(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("sensors:\n- {name: a, every: 1m30s}\n")
    by_file = load(SensorSettings, flags={}, environ={}, file=file)
    assert (Sensor("a", timedelta(seconds=90)),) == by_file.sensors
    assert [{"name": "a", "every": "1m30s"}] == dump(by_file)["sensors"]
    by_flag = load(SensorSettings, flags={"sensors": "[{name: b}]"}, environ={}, file=file)
    assert (Sensor("b"),) == by_flag.sensors
    environ = {"DP_SENSORS": "- name: c\n"}
    assert (Sensor("c"),) == load(SensorSettings, flags={}, environ=environ).sensors


def test_all_that_is_wrong_with_a_setting_of_a_kind_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("log-level: loud\nsensors:\n- {nam: a}\n- {name: A, every: 5}\n")
    assert [
        f"{file}:1: log-level: 'loud' is not one of debug, info, warning, error",
        f"{file}:3: sensors[0].nam: unknown key: did you mean 'name'?",
        f"{file}:3: sensors[0]: name is missing",
        f"{file}:4: sensors[1].name: 'A' {NAME}",
        f"{file}:4: sensors[1].every: 5 is not a duration, such as 500ms, 30s or 1m30s",
    ] == problem(SensorSettings, file=file).splitlines()
    expected = "--sensors: is empty: give a list, or leave it out"
    assert expected == problem(SensorSettings, flags={"sensors": " "})
    expected = "--sensors: [0]: name is missing"
    assert expected == problem(SensorSettings, flags={"sensors": "[{}]"})
    expected = "environment variable DP_SENSORS: line 2: [0].nme: unknown key: did you mean 'name'?"
    environ = {"DP_SENSORS": "- name: c\n  nme: d\n"}
    assert expected == problem(SensorSettings, environ=environ)


def test_keys_that_a_plugin_makes_up_are_unknown(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class OddSettings(Settings):
        @classmethod
        def from_file(cls, root: Place) -> Mapping[str, object]:
            return {"log-levle": "debug", **root.keys()}

    file = tmp_path / "c.yaml"
    file.write_text("a: 1\n")
    assert [
        f"{file}:1: log-levle: unknown key: did you mean 'log-level'?",
        f"{file}:1: a: {bounded(KNOWN)}",
    ] == problem(OddSettings, file=file).splitlines()


def test_a_file_by_itself_makes_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DP_LOG_LEVEL", "error")
    file = tmp_path / "c.json"
    file.write_text('{"log-level": "debug"}')
    assert "debug" == Settings.of_file(file).log_level
    file.write_text('{"log-level": "loud"}')
    with pytest.raises(ConfigError, match="'loud' is not one of"):
        Settings.of_file(file)


def test_classes_of_settings_as_they_should_be() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Fine(OwnSettings):
        count: ClassVar[int] = 0
        optional: Path | None = None

    class Bare(OwnSettings):
        """Reads its file in another way, and has no fields of its own."""

        many: ClassVar[int] = 5

    for settings in (Settings, SensorSettings, Fine, Bare):
        check(settings)


# Classes that an author may not have thought through.


def made(name: str, *fields: tuple[str, Any, Any]) -> type:
    """Return a class of settings with these fields, each with a type and a default."""
    return make_dataclass(name, fields, bases=(Settings,), frozen=True, kw_only=True)


NOT_DERIVED = "settings must be a class derived from Settings, not"


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        (
            made("Odd", ("depths", dict[str, int], None), ("raw", bytes, b"")),
            [
                "Odd: depths cannot be a setting, because of its type dict[str, int]: known are",
                "Odd: raw cannot be a setting, because of its type bytes: known are",
            ],
        ),
        (
            type("Forgotten", (Settings,), {"__annotations__": {"model": str}, "model": "t1"}),
            ["Forgotten: model is not a field: put @dataclass(frozen=True, kw_only=True) over the"],
        ),
        (
            made("Lazy", ("model", "Nowhere", "t1")),
            ["Lazy: the type of a field is unknown: name 'Nowhere' is not defined"],
        ),
        (dict, [f"{NOT_DERIVED} dict"]),
        (Settings(), [f"{NOT_DERIVED} Settings(plugin_dir="]),
        (5, [f"{NOT_DERIVED} 5"]),
    ],
)
def test_what_cannot_be_a_class_of_settings_is_told_before_anybody_sets_it(
    given: Any, texts: list[str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        check(given)
    lines = str(raised.value).splitlines()
    assert len(texts) == len(lines)
    assert all(line.startswith(text) for line, text in zip(lines, texts, strict=True))


def test_a_field_may_say_what_an_empty_text_means() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Lenient(Settings):
        loud: bool = field(default=True, metadata={"empty": False})
        prefix: str = field(default="a/", metadata={"empty": ""})

    assert (False, "") == (
        load(Lenient, flags={"loud": ""}, environ={}).loud,
        load(Lenient, flags={}, environ={"DP_PREFIX": ""}).prefix,
    )
    assert "is not one of true" in problem(OwnSettings, flags={"serial": "s", "shared": ""})


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        *(
            ("driver-name", name, "is not the name of a driver: use at most 63 ")
            for name in ("Gopher.example.com", "gopher..com", f"{'a' * 60}.com")
        ),
        ("api-server", "10.96.0.1:443", "is not the URL of a server, such as https://10.96.0.1"),
        ("protocol", "both", "is not one of device-plugin, dra"),
        ("on-unhealthy", "evict", "is not one of no-schedule, no-execute, report"),
    ],
)
def test_a_wrong_setting_of_dra_is_refused(key: str, value: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"^--{key}: '.*' {problem}"):
        load(Settings, flags={key: value}, environ={})


def test_settings_of_dra_may_be_empty_and_the_node_comes_from_the_downward_api() -> None:
    empty = dict.fromkeys(("driver-name", "api-server"), "")
    found = load(Settings, flags=empty, environ={"NODE_NAME": "n1"})
    assert ("", "", "n1") == (found.driver_name, found.api_server, found.node_name)
    given = {"driver-name": "gopher.example.com", "api-server": "https://10.96.0.1:443"}
    found = load(Settings, flags=given, environ={})
    assert given == {"driver-name": found.driver_name, "api-server": found.api_server}


def test_a_file_of_several_plugins_is_found_by_the_name_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is opened before anything of it is read."""
    (tmp_path / "n1").write_text("log-level: debug")
    (tmp_path / "n3.yaml").touch()
    monkeypatch.setenv("NODE_NAME", "n1")
    assert {"log-level": "debug"} == Settings.open_file(tmp_path).plain()
    monkeypatch.setenv("NODE_NAME", "n2")
    with pytest.raises(
        ConfigError, match=r"has n1, n3\.yaml: call one n2, as this node, or default"
    ):
        Settings.open_file(tmp_path)
