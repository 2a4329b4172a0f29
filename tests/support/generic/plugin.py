"""Words for tests of the generic plugin."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from deviceplugin_generic import GenericPlugin, GenericSettings, Roots
from deviceplugin_generic.configuration.loading import Devices, Domains
from hardware.tree import Hardware


class Machine(Hardware):
    """Hardware, and plugins that look at it."""

    @property
    def roots(self) -> Roots:
        return Roots(self.dev, self.sys, self.udev)

    def plugin(self, *entries: str, **changes: object) -> GenericPlugin:
        """Return a plugin with entries, as on the command line."""
        given = {"device": Devices.parse(list(entries)), "domain": Domains(("squat.ai",))}
        settings = GenericSettings(**(given | changes))  # type: ignore[arg-type]
        return GenericPlugin(settings, self.roots)

    def plugin_of(self, file: Path, text: str) -> GenericPlugin:
        """Return a plugin with a configuration file that has ``text``."""
        file.write_text(text, encoding="utf-8")
        return GenericPlugin(GenericSettings.of_file(file), self.roots)


def make_node(path: Path, mode: int = 0o600, group: int = 0) -> None:
    """Make a real device node in place of a link: in a directory, links do not count."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, 0o020000, os.makedev(1, 3))
        path.chmod(mode)
        os.chown(path, 0, group)
    except OSError as error:
        pytest.skip(f"no device nodes can be made here: {error}")


def write_bits(folder: Path, bits: Mapping[str, str]) -> None:
    """Write what the kernel says that an input device can do, in words of bits."""
    (folder / "capabilities").mkdir()
    for name in ("ev", "key", "rel", "abs"):
        (folder / "capabilities" / name).write_text(f"{bits.get(name, '0')}\n")
    (folder / "properties").write_text(f"{bits.get('properties', '0')}\n")
