"""The package needs every plugin beside it that can be hosted, in the version that fits."""

import tomllib
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Plugins(MetadataHookInterface):
    """Finds them in the checkout; a source distribution has the list that was made there."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the dependencies."""
        made = Path(self.root, "PKG-INFO")
        if made.is_file():
            headers = HeaderParser().parsestr(made.read_text(encoding="utf-8"))
            metadata["dependencies"] = headers.get_all("Requires-Dist", [])
            return
        projects = [
            tomllib.loads(path.read_text(encoding="utf-8"))["project"]
            for path in sorted(Path(self.root).parent.glob("*/pyproject.toml"))
        ]
        names = [
            one["name"] for one in projects if "deviceplugin.plugins" in one.get("entry-points", {})
        ]
        metadata["dependencies"] = [
            f"{name}~={metadata['version']}" for name in ("deviceplugin", *names)
        ]
