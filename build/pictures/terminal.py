"""Record a demo as a picture of a terminal.

    terminal.py [gpu]    writes demo/demo.svg, or demo/gpu.svg

The README shows it. A test compares its steps with those of the demo.
"""

import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

FOLDER: Final = Path(__file__).parents[2] / "demo"
WIDTH: Final = 100
_FONT: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_CLASS: Final = re.compile(r"terminal-\d+-")


def record(name: str) -> str:
    """Run the demo ``name``, and return the picture of what it prints."""
    words = [sys.executable, "-m", f"demo.{name}"]
    environment = {**os.environ, "FORCE_COLOR": "1"}
    environment.pop("NO_COLOR", None)
    done = subprocess.run(
        words, cwd=FOLDER.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return picture(done.stdout, f"make demo{'' if name == 'demo' else f' ARGS={name}'}")


def picture(output: str, title: str) -> str:
    """Return the picture of a terminal with ``output``, without anything from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(output.strip()))
    # Fonts would be fetched; names in the picture would be others each time.
    return _CLASS.sub("t-", _FONT.sub("", console.export_svg(title=title)))


def main(argv: Sequence[str]) -> None:
    """Write the picture."""
    name = argv[0] if argv else "demo"
    (FOLDER / f"{name}.svg").write_text(record(name), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
