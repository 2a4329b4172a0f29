import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Writes the configuration file, as a whole as an editor does."""
    (tmp_path / "gophers").mkdir()
    (tmp_path / "gophers/alice").touch()

    def write(**sections: Any) -> Path:
        gopher = {"directory": str(tmp_path / "gophers")}
        path = tmp_path / "config.json"
        new = tmp_path / "new.json"
        new.write_text(json.dumps({"gopher": gopher, **sections}))
        new.replace(path)
        return path

    return write
