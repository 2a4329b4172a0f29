"""Settings without effect are told at the start, with what has one."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deviceplugin_gpu.command_line import Command
from deviceplugin_gpu.configuration.device_list_strategy import Strategies
from deviceplugin_gpu.configuration.settings import GpuSettings, without_effect

CDI_ONLY = Strategies(("cdi-cri",))
BOTH = Strategies(("envvar", "cdi-annotations"))


@pytest.mark.parametrize(
    ("setting", "given"),
    [
        ("nvidia-cdi-hook-path", {"nvidia_cdi_hook_path": Path("/usr/local/bin/nvidia-ctk")}),
        ("cdi-feature-flags", {"cdi_feature_flags": ("disable-nvsandboxutils",)}),
        ("cdi-disable-hooks", {"cdi_disable_hooks": ("all",)}),
        ("cdi-annotation-prefix", {"cdi_annotation_prefix": "example.com/"}),
        ("pass-device-specs", {"pass_device_specs": True, "device_list_strategy": CDI_ONLY}),
        ("imex-required", {"imex_required": True, "device_list_strategy": CDI_ONLY}),
    ],
)
def test_a_setting_without_effect_is_told(setting: str, given: dict[str, Any]) -> None:
    ((found, instead),) = without_effect(GpuSettings(**given))
    assert (setting, True) == (found, bool(instead))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"device_list_strategy": CDI_ONLY},
        {"pass_device_specs": True, "device_list_strategy": BOTH},
        {"cdi_annotation_prefix": "example.com/", "device_list_strategy": BOTH},
        {"imex_required": True, "imex_channel_ids": (0,), "device_list_strategy": CDI_ONLY},
        {"nvidia_cdi_hook_path": Path("/opt/nvidia-ctk"), "device_list_strategy": CDI_ONLY},
        {"cdi_disable_hooks": ("all",), "device_list_strategy": BOTH},
        {"imex_required": True, "imex_channel_ids": (0,)},
        {"mps_root": Path("/run/nvidia/mps")},  # as NVIDIA's chart always gives it
    ],
)
def test_of_what_has_an_effect_nothing_is_said(given: dict[str, Any]) -> None:
    assert [] == list(without_effect(GpuSettings(**given)))


def test_it_is_told_once_however_often_settings_are_read(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    useful = GpuSettings(driver_root_ctr_path=tmp_path, fail_on_init_error=False, state_file=None)
    useless = replace(useful, cdi_feature_flags=("a",))
    command = Command()

    def told() -> int:
        found = [one for one in caplog.records if one.msg == "setting without effect ignored"]
        assert {("cdi-feature-flags", logging.WARNING)} >= {
            (vars(one)["setting"], one.levelno) for one in found
        }
        return len(found)

    for settings, expected in ((useless, 1), (useless, 1), (useful, 1), (useless, 2)):
        command.make(settings)
        assert expected == told()
