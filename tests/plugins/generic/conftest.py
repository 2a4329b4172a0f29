"""A node with hardware in a temporary directory, and plugins that look at it."""

from pathlib import Path

import pytest

from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from generic.plugin import Make
from hardware.tree import Hardware


@pytest.fixture
def hardware(tmp_path: Path) -> Hardware:
    return Hardware(tmp_path / "hardware")


@pytest.fixture
def make(hardware: Hardware) -> Make:
    """Return what makes a plugin of entries, as on the command line."""

    def make_plugin(*entries: str, **changes: object) -> GenericPlugin:
        given = {"device": Devices.parse(list(entries)), "domain": Domains(("squat.ai",))}
        settings = GenericSettings(**(given | changes))  # type: ignore[arg-type]
        return GenericPlugin(settings, Roots(hardware.dev, hardware.sys, hardware.udev))

    return make_plugin
