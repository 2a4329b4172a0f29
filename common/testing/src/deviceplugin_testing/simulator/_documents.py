"""Reading files in JSON or YAML."""

import json
from pathlib import Path
from typing import Any

from deviceplugin._config.documents.yaml_nodes import plain


def documents(path: Path) -> list[Any]:
    """Return the documents in ``path``: JSON has one, YAML any number.

    YAML needs PyYAML, which the ``yaml`` extra installs.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not valid, or PyYAML is missing.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return [json.loads(text)]
    try:
        return plain(text)
    except ImportError:
        raise ValueError("YAML needs PyYAML: pip install 'deviceplugin[yaml]'") from None
