"""A process that runs only plugins does not pay for the client."""

import subprocess
import sys
from pathlib import Path


def test_a_plugin_loads_neither_the_client_nor_its_library(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from deviceplugin_gopher import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import deviceplugin._app.command, deviceplugin._app.host\n"
        "late = ('urllib3', 'deviceplugin.apiserver', 'deviceplugin._dra')\n"
        "print([n for n in sys.modules if n.startswith(late)])\n"
    )
    words = [sys.executable, "-c", program, "--once", "--directory", str(tmp_path)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert said.splitlines()[-1] == "[]"
