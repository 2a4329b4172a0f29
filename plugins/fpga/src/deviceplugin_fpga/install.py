"""Installs the programming hook on the host, as one file that needs only the host's Python."""

import io
from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from deviceplugin.kit import files, sysfs

INTERPRETERS: Final = (
    "/usr/bin/python3",
    "/usr/bin/python3.1[0-9]",
    "/usr/bin/python3.9",
    "/usr/local/bin/python3",
)
"""Where hosts have Python, as shell patterns. Runtimes call hooks without PATH."""
_START: Final = f"""\
#!/bin/sh
# Below is a zip archive, which Python runs. This finds a Python that can.
for python in {" ".join(INTERPRETERS)}; do
    if "$python" -IS -c 'import sys; sys.exit(sys.version_info < (3, 9))' </dev/null 2>/dev/null
    then exec "$python" -I "$0" "$@"
    fi
done
echo "fpga-hook: needs Python 3.9 or newer on the host: none of {", ".join(INTERPRETERS)}" >&2
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


def install(path: Path) -> None:
    """Write the hook to ``path``, replacing any file. A running hook is not disturbed.

    Raises:
        OSError: It cannot be written.
    """
    files.write(path, archive(), mode=0o755)


def archive() -> bytes:
    """Return the hook: a zip file that Python runs. The same code gives the same bytes."""
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
