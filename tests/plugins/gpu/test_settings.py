"""Flags, variables and the configuration file."""

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_gpu import main
from deviceplugin_gpu.command_line import Command as Maker
from deviceplugin_gpu.configuration.setting_kinds import Strategies
from deviceplugin_gpu.configuration.settings import GpuSettings, without_effect


class Command:
    """The command, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], environment: pytest.MonkeyPatch) -> None:
        self._capsys, self._environment = capsys, environment

    def run(self, *arguments: str, **environ: str) -> tuple[object, str, list[str]]:
        """Return its exit status, what it prints, and the errors that it tells of."""
        for name in os.environ:
            self._environment.delenv(name)
        for name, value in environ.items():
            self._environment.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main(arguments)
        out, err = self._capsys.readouterr()
        return end.value.code, out, [line.partition(": ")[2] for line in err.splitlines()]

    def settings(self, *arguments: str, **environ: str) -> Mapping[str, Any]:
        status, out, err = self.run("--print-config", *arguments, **environ)
        assert (0, []) == (status, err)
        found: Mapping[str, Any] = json.loads(out)
        return found


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(capsys, monkeypatch)


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


FILE = """
version: v1
flags:
  migStrategy: single
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [volume-mounts]
    deviceIDStrategy: index
  gfd:
    noTimestamp: true
resources:
  gpus:
  - {pattern: "*A100*", name: a100}
sharing:
  timeSlicing:
    renameByDefault: true
    resources:
    - {name: gpu, replicas: 4, devices: [0, "GPU-1", "*H100*"]}
imex: {channelIDs: [0]}
exclude: ["3b:00.0"]
"""


@pytest.mark.parametrize("way", ["--config", "--config-file", "CONFIG_FILE", "DP_CONFIG"])
def test_a_file_of_version_v1_is_read(command: Command, tmp_path: Path, way: str) -> None:
    path = written(tmp_path, FILE)
    by_flag = way.startswith("--")
    found = command.settings(f"{way}={path}") if by_flag else command.settings(**{way: path})
    expected = {
        "mig-strategy": "single",
        "fail-on-init-error": False,
        "driver-root": "/run/nvidia/driver",
        "pass-device-specs": True,
        "device-list-strategy": ["volume-mounts"],
        "device-id-strategy": "index",
        "imex-channel-ids": [0],
        "exclude": ["3b:00.0"],
        "resources": {"gpus": [{"pattern": "*A100*", "name": "nvidia.com/a100"}]},
        "sharing": {
            "timeSlicing": {
                "renameByDefault": True,
                "failRequestsGreaterThanOne": False,
                "resources": [
                    {
                        "name": "nvidia.com/gpu",
                        "replicas": 4,
                        "devices": ["0", "GPU-1", "*H100*"],
                        "rename": "nvidia.com/gpu.shared",
                    }
                ],
            }
        },
    }
    assert expected == {key: found[key] for key in expected}


def test_the_command_needs_no_arguments(command: Command) -> None:
    status, out, (problem,) = command.run(MIG_STRATEGY="all")
    assert (2, "") == (status, out)
    assert problem.startswith("environment variable MIG_STRATEGY: 'all' is not one of")


def test_entries_without_a_name_are_not_called_the_same(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "sharing: {timeSlicing: {resources: [5, null, {}, {}]}}")
    _, _, err = command.run(f"--config={path}", "--once")
    assert [] == [line for line in err if "more than once" in line]
    assert [] != [line for line in err if "resources[2]: name is missing" in line]


@pytest.mark.parametrize("arguments", [["--config-file="], ["--config-file", ""]])
def test_an_empty_name_of_a_file_is_none(command: Command, arguments: list[str]) -> None:
    assert "none" == command.settings(*arguments)["mig-strategy"]
    assert "none" == command.settings(*arguments, CONFIG_FILE="/nowhere.yaml")["mig-strategy"]
    assert "none" == command.settings(CONFIG_FILE="")["mig-strategy"]


def test_keys_of_annotations_are_no_longer_than_kubernetes_has_them(command: Command) -> None:
    assert 2 == command.run("--cdi-annotation-prefix=x.io/tenletters1", "--once")[0]
    found = command.settings("--cdi-annotation-prefix=x.io/tenletters")
    assert "x.io/tenletters" == found["cdi-annotation-prefix"]


ROWS = [
    ("mig-strategy", "flags.migStrategy", "none single mixed"),
    ("fail-on-init-error", "flags.failOnInitError", "true false true"),
    ("driver-root nvidia-driver-root", "flags.nvidiaDriverRoot", "/1 /2 /3"),
    ("dev-root nvidia-dev-root", "flags.nvidiaDevRoot", "/1 /2 /3"),
    ("driver-root-ctr-path container-driver-root", "flags.plugin.containerDriverRoot", "/1 /2 /3"),
    ("pass-device-specs", "flags.plugin.passDeviceSpecs", "false true false"),
    ("device-list-strategy", "flags.plugin.deviceListStrategy", "envvar cdi-cri volume-mounts"),
    ("device-id-strategy", "flags.plugin.deviceIDStrategy", "uuid index uuid"),
    (
        "shared-devices-allocation-policy",
        "flags.plugin.sharedDevicesAllocationPolicy",
        "distributed packed distributed",
    ),
    ("device-discovery-strategy", "flags.deviceDiscoveryStrategy", "tegra nvml auto"),
    ("gdrcopy-enabled", "flags.gdrcopyEnabled", "false true false"),
    ("gds-enabled", "flags.gdsEnabled", "false true false"),
    ("mofed-enabled", "flags.mofedEnabled", "false true false"),
    ("cdi-annotation-prefix", "flags.plugin.cdiAnnotationPrefix", "a/ b/ c/"),
    ("nvidia-cdi-hook-path nvidia-ctk-path", "flags.plugin.nvidiaCTKPath", "/1 /2 /3"),
    ("cdi-feature-flags", "", "a b c"),
    ("cdi-disable-hooks", "", "a all c"),
    ("mps-root", "flags.mpsRoot", "/1 /2 /3"),
    ("imex-channel-ids", "imex.channelIDs", "[] 0 "),
    ("imex-required", "imex.required", "false true false"),
    ("kubelet-socket", "", "- /2/kubelet.sock /3/kubelet.sock"),
    ("disable-healthchecks", "", "- all 79,48"),
    ("enable-healthchecks", "", "- all 79,48"),
]
"""Flags, place in the file, and a value for the file, the variable and the flag."""
VARIABLES = {
    "driver-root": "NVIDIA_DRIVER_ROOT",
    "dev-root": "NVIDIA_DEV_ROOT",
    "disable-healthchecks": "DP_DISABLE_HEALTHCHECKS",
    "enable-healthchecks": "DP_ENABLE_HEALTHCHECKS",
}
"""Those that are not called as their flag."""


def variable_of(flag: str) -> str:
    return VARIABLES.get(flag, flag.upper().replace("-", "_"))


def _as_said(text: str, like: object) -> object:
    if isinstance(like, bool):
        return text == "true"
    if isinstance(like, list):
        return [int(text) if text == "0" else text] if text not in {"", "[]"} else []
    return text


@pytest.mark.parametrize(("flags", "place", "values"), ROWS)
def test_each_setting_of_the_reference_plugin_has_its_precedence(
    command: Command, tmp_path: Path, flags: str, place: str, values: str
) -> None:
    by_file, by_variable, by_flag = values.split(" ")
    key, *_ = names = flags.split()
    arguments = []
    if place:
        *outer, last = place.split(".")
        text = f"{last}: {by_file}"
        for name in reversed(outer):
            text = f"{name}: {{{text}}}"
        arguments = [f"--config-file={written(tmp_path, text)}"]
        found = command.settings(*arguments)[key]
        assert _as_said(by_file, found) == found
    for variable in {*map(variable_of, names)}:
        found = command.settings(*arguments, **{variable: by_variable})[key]
        assert _as_said(by_variable, found) == found
        for flag in names:
            words = [f"--{flag}={by_flag}", *arguments]
            found = command.settings(*words, **{variable: by_variable})[key]
            assert _as_said(by_flag, found) == found


PAGE = Path(__file__).parents[3] / "plugins/gpu/docs/coming-from-nvidia.md"
TABLE = PAGE.read_text().partition("## Flags and variables")[2].partition("\n## ")[0]


def row(flag: str) -> str:
    """Return the line of the page's table that a flag has."""
    (line,) = [line for line in TABLE.splitlines() if re.search(rf"^\|.*`--{flag}`", line)]
    return line


CTK = {"nvidia_cdi_hook_path": Path("/usr/local/bin/nvidia-ctk")}
VARIABLES_ALONE = {"disable-healthchecks", "enable-healthchecks"}
"""What NVIDIA's plugin has no flags for."""


def test_each_flag_and_variable_of_the_reference_plugin_is_on_the_page_and_no_other() -> None:
    flags = {flag for names, *_ in ROWS for flag in names.split()} - VARIABLES_ALONE
    rows = [line for line in TABLE.splitlines() if line.startswith("| `")]
    told = {*re.findall(r"`--([a-z-]+)`", "\n".join(rows))}
    assert {*flags, "config-file"} == told
    assert [] == [flag for flag in told if f"`{variable_of(flag)}`" not in row(flag)]
    assert [] == [flag for flag in VARIABLES_ALONE if f"| `{variable_of(flag)}` |" not in TABLE]


def test_what_the_page_says_to_be_without_effect_is_told_to_be() -> None:
    given: dict[str, Any] = {**CTK, "cdi_feature_flags": ("a",), "cdi_disable_hooks": ("a",)}
    rows = [line for line in TABLE.splitlines() if "without effect" in line]
    said = [re.findall(r"`--([a-z-]+)`", line)[0] for line in rows if line.startswith("| `")]
    assert sorted(name for name, _ in without_effect(GpuSettings(**given))) == sorted(said)


def test_a_flag_that_is_repeated_is_a_list_and_a_socket_is_in_the_plugin_dir(
    command: Command,
) -> None:
    strategies = ["--device-list-strategy=cdi-cri", "--device-list-strategy=envvar,volume-mounts"]
    found = command.settings(*strategies, "--kubelet-socket=/other/kubelet.sock")
    assert ["envvar", "volume-mounts", "cdi-cri"] == found["device-list-strategy"]
    assert "/other" == found["plugin-dir"]


def test_printed_settings_can_be_read_again(command: Command, tmp_path: Path) -> None:
    found = command.settings(f"--config={written(tmp_path, FILE)}")
    path = tmp_path / "printed.json"
    path.write_text(json.dumps(found))
    assert found == command.settings(f"--config={path}")


PLUGIN, SLICING = "flags.plugin.", "sharing.timeSlicing.resources"
MANY = f"renameByDefault: true, resources: [{{name: {'a' * 60}, replicas: 2}}]"


def sliced(share: str) -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{{share}}}]}}}}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: v2", "version: 'v2' is not known: write v1"),
        ("version: [v1]", "version: a list is not known: write v1"),
        ("flags: {plugin: {deviceListStrategy: []}}", f"{PLUGIN}deviceListStrategy: is empty"),
        (
            "flags: {plugin: {deviceListStrategy: cdi}}",
            f"{PLUGIN}deviceListStrategy: 'cdi' is not one of envvar, volume-mounts,",
        ),
        (
            "flags: {plugin: {cdiAnnotationPrefix: no slash}}",
            "cdi-annotation-prefix: 'no slash' is not a domain and a slash",
        ),
        (
            f"sharing: {{timeSlicing: {{{MANY}}}}}",
            f"{SLICING}[0]: nvidia.com/{'a' * 60}.shared is too long",
        ),
        (
            sliced("name: gpu, replicas: 0"),
            f"{SLICING}[0].replicas: 0 is not a whole number from 1 to 100000",
        ),
        (sliced("name: gpu"), f"{SLICING}[0]: replicas is missing"),
        (sliced("name: /, replicas: 2"), f"{SLICING}[0].name: '/' is not the name of a resource"),
        (sliced("name: gpu, replicas: 2, devices: []"), f"{SLICING}[0].devices: is empty"),
        (
            "sharing: {mps: {resources: [{name: a, replicas: 2}, {name: a, replicas: 3}]}}",
            "sharing.mps.resources[1]: nvidia.com/a is given more than once: say which",
        ),
        ("sharing: {timeSlicing: {}, mps: {}}", "sharing: timeSlicing and mps exclude each other"),
        ("resources: {mig: [{pattern: , name: small}]}", "resources.mig[0]: pattern is missing"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place(
    command: Command, tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path, text)
    status, out, err = command.run(f"--config={path}", "--once")
    assert (2, "") == (status, out)
    assert [] != [
        line for line in err if re.match(rf"({path}:[12]: )?{re.escape(problem)}", line)
    ], err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--mig-strategy=all"], "--mig-strategy: 'all' is not one of none, single, mixed"),
        (["--imex-channel-ids=1"], "imex-channel-ids: [1] is neither [] nor [0]"),
        (["--kubelet-socket=/x.sock"], "kubelet-socket: '/x.sock' is not a path that ends in"),
        (["--sharing={mps: {}}"], "mps-root is needed for sharing with mps"),
    ],
)
def test_settings_that_cannot_be_used_end_the_command(
    command: Command, arguments: list[str], problem: str
) -> None:
    status, out, err = command.run(*arguments, "--once")
    assert (2, "") == (status, out)
    assert err[0].startswith(problem), err


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, True) for value in ("1", "t", "T", "TRUE", "true", "True")),
        *((value, False) for value in ("0", "f", "F", "FALSE", "false", "False")),
    ],
)
def test_a_truth_may_be_written_as_go_has_it(
    command: Command, value: str, *, expected: bool
) -> None:
    name = "gds-enabled" if expected else "fail-on-init-error"
    variable = name.upper().replace("-", "_")
    by_variable = command.settings(**{variable: value})[name]
    assert [expected] * 2 == [command.settings(f"-{name}={value}")[name], by_variable]


@pytest.mark.parametrize(
    ("variable", "flag", "expected"),
    [
        ("FAIL_ON_INIT_ERROR", "fail-on-init-error", False),
        ("PASS_DEVICE_SPECS", "pass-device-specs", False),
        ("GDRCOPY_ENABLED", "gdrcopy-enabled", False),
        ("GDS_ENABLED", "gds-enabled", False),
        ("MOFED_ENABLED", "mofed-enabled", False),
        ("IMEX_REQUIRED", "imex-required", False),
        ("CDI_ANNOTATION_PREFIX", "cdi-annotation-prefix", ""),
        ("NVIDIA_DRIVER_ROOT", "driver-root", "/"),
        ("NVIDIA_DEV_ROOT", "dev-root", None),
        ("CONTAINER_DRIVER_ROOT", "driver-root-ctr-path", "/"),
        ("NVIDIA_CTK_PATH", "nvidia-cdi-hook-path", "/usr/bin/nvidia-ctk"),
        ("MPS_ROOT", "mps-root", None),
        ("IMEX_CHANNEL_IDS", "imex-channel-ids", []),
        ("KUBELET_SOCKET", "kubelet-socket", None),
        ("CDI_FEATURE_FLAGS", "cdi-feature-flags", []),
        ("CDI_DISABLE_HOOKS", "cdi-disable-hooks", []),
    ],
)
def test_what_the_reference_takes_empty_is_taken_empty(
    command: Command, variable: str, flag: str, expected: object
) -> None:
    assert expected == command.settings(**{variable: ""})[flag]
    assert expected == command.settings(f"--{flag}=")[flag]


@pytest.mark.parametrize(
    "variable",
    [
        *("MIG_STRATEGY", "DEVICE_LIST_STRATEGY", "DEVICE_ID_STRATEGY"),
        *("SHARED_DEVICES_ALLOCATION_POLICY", "DEVICE_DISCOVERY_STRATEGY"),
    ],
)
def test_an_empty_choice_is_refused_there_and_here(command: Command, variable: str) -> None:
    status, _, (problem, *_) = command.run("--print-config", **{variable: ""})
    assert (2, True) == (status, f"{variable}: ''" in problem)


def test_one_dash_is_as_good_as_two(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 3}]}}")
    found = command.settings(
        "-mig-strategy=single", "-nvidia-driver-root", "/d", "-pass-device-specs",
        "-device-list-strategy", "cdi-cri", "-config-file", path,
    )  # fmt: skip
    assert ["single", "/d", True, ["cdi-cri"], 3] == [
        found["mig-strategy"],
        found["driver-root"],
        found["pass-device-specs"],
        found["device-list-strategy"],
        found["sharing"]["timeSlicing"]["resources"][0]["replicas"],
    ]


def test_a_value_with_a_dash_stays_a_value(command: Command) -> None:
    assert "-7" == command.settings("--disable-healthchecks=-7")["disable-healthchecks"]
    status, _, (problem,) = command.run("-mig-stratgy=single", "--print-config")
    assert (2, True) == (status, "-mig-stratgy" in problem)


@pytest.mark.parametrize("text", ['"T"', '"f"', "true", '""', "null"])
def test_a_truth_of_the_file_may_be_written_so_too(
    command: Command, tmp_path: Path, text: str
) -> None:
    path = written(tmp_path, f"flags: {{gdsEnabled: {text}}}")
    expected = text in {'"T"', "true"}
    assert expected == command.settings(f"--config-file={path}")["gds-enabled"]


CDI_ONLY = Strategies(("cdi-cri",))
BOTH = Strategies(("envvar", "cdi-annotations"))
PREFIX = {"cdi_annotation_prefix": "example.com/"}
ALL_HOOKS = {"cdi_disable_hooks": ("all",)}


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        (CTK, "nvidia-cdi-hook-path"),
        ({**CTK, "device_list_strategy": CDI_ONLY}, ""),
        ({"cdi_feature_flags": ("disable-nvsandboxutils",)}, "cdi-feature-flags"),
        (ALL_HOOKS, "cdi-disable-hooks"),
        ({**ALL_HOOKS, "device_list_strategy": BOTH}, ""),
        (PREFIX, "cdi-annotation-prefix"),
        ({**PREFIX, "device_list_strategy": BOTH}, ""),
        ({"pass_device_specs": True, "device_list_strategy": CDI_ONLY}, "pass-device-specs"),
        ({"pass_device_specs": True, "device_list_strategy": BOTH}, ""),
        ({"imex_required": True, "device_list_strategy": CDI_ONLY}, "imex-required"),
        ({"imex_required": True, "imex_channel_ids": (0,)}, ""),
        ({"mps_root": Path("/run/nvidia/mps")}, ""),  # as NVIDIA's chart always gives it
        ({"device_list_strategy": CDI_ONLY}, ""),
        ({}, ""),
    ],
)
def test_a_setting_without_effect_is_told(given: dict[str, Any], setting: str) -> None:
    found = dict(without_effect(GpuSettings(**given)))
    assert [setting] * bool(setting) == [*found]
    assert all(found.values())


def test_it_is_told_once_however_often_settings_are_read(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    useful = GpuSettings(driver_root_ctr_path=tmp_path, fail_on_init_error=False, state_file=None)
    useless = replace(useful, cdi_feature_flags=("a",))
    maker = Maker()

    def told() -> int:
        found = [one for one in caplog.records if one.msg == "setting without effect ignored"]
        assert {("cdi-feature-flags", logging.WARNING)} >= {
            (vars(one)["setting"], one.levelno) for one in found
        }
        return len(found)

    for settings, expected in ((useless, 1), (useless, 1), (useful, 1), (useless, 2)):
        maker.make(settings)
        assert expected == told()
