"""The JSON Schema of the configuration, for editors. ``make generate`` writes ``schema.json``."""

import json
from typing import Any

from deviceplugin.kit import configuration
from deviceplugin.kit.configuration import list_of, settings_schema
from deviceplugin_generic.configuration.entries import LEVELS, SETTINGS
from deviceplugin_generic.configuration.grammar import RULE
from deviceplugin_generic.plugin import GenericSettings


def _settings() -> dict[str, Any]:
    described = settings_schema(GenericSettings)
    own: dict[str, Any] = dict(described["properties"])
    own["log-level"] = {**own["log-level"], "enum": [*own["log-level"]["enum"], *LEVELS]}
    others = {key: own[name] for key, name in SETTINGS.items()}
    twice = {"required": ["device", "devices"]}
    return {**described, "properties": {**others, **own}, "not": twice}


def text() -> str:
    """Return the content of ``schema.json``."""
    described = {"anyOf": [_settings(), list_of(RULE), {"type": "null"}]}
    schema = configuration.schema(described, "Configuration of generic-device-plugin")
    return json.dumps(schema, indent=2) + "\n"
