"""Reports of the commands as JSON, for programs."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any


def document(form: int, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``parts``, preceded by ``form``, the version of their form, and by our version."""
    return {"format": form, "deviceplugin": version("deviceplugin"), **parts}


def to_json(document: Mapping[str, Any]) -> str:
    """Return ``document`` as text."""
    return json.dumps(document, indent=1) + "\n"
