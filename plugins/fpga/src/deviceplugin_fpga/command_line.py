"""The command ``fpga-device-plugin``, and the hook that it installs as one file."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

import deviceplugin as dp
from deviceplugin.kit import files, sysfs
from deviceplugin.kit.hosting import Hosted
from deviceplugin_fpga.plugin import FpgaPlugin
from deviceplugin_fpga.resource_names import NAMESPACE, read_aliases
from deviceplugin_fpga.settings import FpgaSettings

INTERPRETERS: Final = (
    "/usr/bin/python3",
    "/usr/bin/python3.1[0-9]",
    "/usr/bin/python3.9",
    "/usr/local/bin/python3",
)
"""Where hosts have Python, as shell patterns. Runtimes call hooks without PATH."""
_NAMES: Final = ", ".join(INTERPRETERS)
_START: Final = f"""\
#!/bin/sh
# Below is a zip archive, which Python runs. It takes a Python that can: a minimal one has no json.
for python in {" ".join(INTERPRETERS)}; do
    if "$python" -IS -c 'import ctypes, json, sys; sys.exit(sys.version_info < (3, 9))' \\
        </dev/null 2>/dev/null
    then exec "$python" -I "$0" "$@"
    fi
done
echo "fpga-hook: needs Python 3.9 or newer with its library on the host: none of {_NAMES}" >&2
exit 1
"""
"""If a script's interpreter is missing, the kernel reports the script itself as missing."""
_PACKAGE: Final = Path(__file__).parent
_SHARED: Final = {
    "deviceplugin/kit/sysfs.py": Path(sysfs.__file__),
    "deviceplugin_fpga/drivers.py": _PACKAGE / "drivers.py",
}
"""Modules that the hook shares with the plugin."""
_MAIN: Final = "from deviceplugin_fpga.hook import main\n\nmain()\n"

_USAGE: Final = "usage: fpga-device-plugin install-hook /PATH/OF/THE/HOOK\n"
_PURPOSE: Final = """\
Write the hook that programs FPGAs when a container starts. It is one file, which the container
runtime calls. The host needs only /bin/sh, and Python 3.9 or newer in /usr/bin.
"""


def install(path: Path) -> None:
    """Write the hook to ``path``, replacing any file. A running hook is not disturbed."""
    files.write(path, archive(), mode=0o755)


def archive() -> bytes:
    """Return the hook: a zip file that Python runs. The same code gives the same bytes."""
    from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo  # a plugin that serves does not need it

    file = io.BytesIO()
    file.write(_START.encode())
    with ZipFile(file, "w", ZIP_DEFLATED) as together:

        def add(name: str, text: str) -> None:
            together.writestr(ZipInfo(name), text, ZIP_DEFLATED)

        add("__main__.py", _MAIN)
        # Empty, because those of the plugin and the framework import more than a host has.
        for package in ("deviceplugin", "deviceplugin/kit", "deviceplugin_fpga"):
            add(f"{package}/__init__.py", "")
        hook = sorted((_PACKAGE / "hook").glob("*.py"))
        own = {f"deviceplugin_fpga/{one.relative_to(_PACKAGE)}": one for one in hook}
        for name, source in (_SHARED | own).items():
            add(name, source.read_text(encoding="utf-8"))
    return file.getvalue()


def main() -> NoReturn:
    """Run ``fpga-device-plugin``, or one of its commands."""
    dp.main(
        FpgaPlugin,
        settings=FpgaSettings,
        commands={"install-hook": install_hook, "name": name, "bitstream": bitstream},
        description="Offer Intel FPGAs to pods: functions that are programmed already, or regions "
        "that are programmed when a container starts.",
    )


def hosted() -> Hosted[FpgaSettings]:
    """Return the plugin for ``device-plugins``."""
    owned = {
        "aliases": "it names a file: deployments/components/fpga-aliases",
        "node-annotation": "it needs a token: deployments/components/node-annotation",
        "sysfs-dir": "every container has its own /sys",
        "hook": "an init container of the manifest writes it",
    }
    return Hosted(FpgaPlugin, FpgaSettings, _resources, owned)


def _resources(settings: FpgaSettings) -> list[str]:
    read_aliases(settings.aliases)  # which the plugin refuses only when it starts
    return [f"{NAMESPACE}/*"]


# Imported late: a plugin on a node never needs these.


def name(arguments: Sequence[str]) -> int:
    """Print what a pod must request to get a function."""
    from deviceplugin_fpga import commands

    return commands.name(arguments)


def bitstream(arguments: Sequence[str]) -> int:
    """Print the contents of a bitstream, and which cards of this machine it fits."""
    from deviceplugin_fpga import commands

    return commands.bitstream(arguments)


def install_hook(arguments: Sequence[str]) -> int:
    """Write the hook that programs FPGAs when a container starts."""
    if {"-h", "--help"} & {*arguments}:
        sys.stdout.write(f"{_USAGE}\n{_PURPOSE}")
        return 0
    path = Path(*arguments[:1])
    if len(arguments) != 1 or not path.is_absolute() or not path.name:
        sys.stderr.write(_USAGE)
        return 2
    try:
        install(path)
    except OSError as error:
        sys.stderr.write(f"fpga-device-plugin: {error.filename}: {error.strerror}\n")
        return 1
    return 0
