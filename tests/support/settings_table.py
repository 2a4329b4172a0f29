"""The rows of a plugin's page that list its settings."""

from dataclasses import fields

import deviceplugin as dp
from deviceplugin._config import loading
from deviceplugin._config.settings import written
from deviceplugin._config.settings_class import helps


def rows(settings: type[dp.Settings]) -> list[str]:
    """Return a row for each setting that is the plugin's own: key, default, what it is for."""
    common = {field.name for field in fields(dp.Settings)}
    texts, found = helps(settings), []
    for field in fields(settings):
        if field.name not in common:
            key, default = loading.key(field), written(field, field.default)
            shown = "see meaning" if "kind" in field.metadata else f"`{default}`"
            default = "none" if default in ("", [], {}) else shown
            found.append(f"| `{key}` | {default} | {texts[key]} |")
    return found
