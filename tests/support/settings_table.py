"""The rows of a plugin's page that list its settings."""

from dataclasses import fields

import deviceplugin as dp
from deviceplugin._config import setting_names, values
from deviceplugin._config.help_texts import helps


def rows(settings: type[dp.Settings]) -> list[str]:
    """Return a row for each setting that is the plugin's own: key, default, what it is for."""
    common = {field.name for field in fields(dp.Settings)}
    texts, found = helps(settings), []
    for field in fields(settings):
        if field.name not in common:
            key, default = setting_names.key(field), values.write(field.default)
            written = "none" if default in ("", []) else f"`{default}`"
            found.append(f"| `{key}` | {written} | {texts[key]} |")
    return found
