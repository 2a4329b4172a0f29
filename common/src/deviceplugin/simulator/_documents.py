"""Reading files in JSON or YAML."""

import json
from pathlib import Path
from typing import Any


def documents(path: Path, text: str) -> list[Any]:
    """Return the documents in the ``text`` of ``path``: JSON has one, YAML any number.

    YAML needs PyYAML, which the ``yaml`` extra installs.

    Raises:
        ValueError: It is not valid, or PyYAML is missing.
    """
    if path.suffix == ".json":
        return [json.loads(text)]
    try:
        import yaml
    except ImportError:
        raise ValueError("YAML needs PyYAML: pip install 'deviceplugin[yaml]'") from None
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
