"""The JSON Schema of the configuration, for editors: ``python -m deviceplugin_generic.schema``."""

import json
import sys
from dataclasses import fields
from typing import Any, get_args

from deviceplugin.kit import configuration
from deviceplugin.kit.configuration import list_of
from deviceplugin_generic import words
from deviceplugin_generic.grammar import ENTRY, RULE
from deviceplugin_generic.plugin import GenericSettings
from deviceplugin_generic.sharing import Overlap


def _settings() -> dict[str, Any]:
    names = [field.name.replace("_", "-") for field in fields(GenericSettings)]
    domain = {
        "type": "string",
        "pattern": words.DOMAIN,
        "description": "Domain of all resource names, or a list of domains",
    }
    several = {"type": "array", "items": domain, "minItems": 1}
    return {
        "type": "object",
        "properties": {
            **{key: {"type": "string"} for key in [*words.SETTINGS, *names]},
            **dict.fromkeys(("device", "devices"), list_of(ENTRY)),
            "domain": {"anyOf": [domain, several]},
            "overlap": {"enum": [*get_args(Overlap)]},
        },
        "additionalProperties": False,
        "not": {"required": ["device", "devices"]},
    }


def text() -> str:
    """Return the content of ``schema.json``."""
    described = {"anyOf": [_settings(), list_of(RULE), {"type": "null"}]}
    schema = configuration.schema(described, "Configuration of generic-device-plugin")
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
