"""Names of resources, and the setting that gives them."""

import re
from dataclasses import dataclass
from typing import Any, Final, Self

from deviceplugin_gpu.configuration.values import Place, checked, text

DOMAIN: Final = "nvidia.com"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def resource_name(value: Any) -> str:
    """Return the full name of a resource; the domain is NVIDIA's where there is none."""
    domain, slash, name = text(value).rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not domain):
        raise ValueError("is not the name of a resource, such as gpu or nvidia.com/gpu")
    return f"{domain or DOMAIN}/{name}"


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of resources by patterns of models and of MIG profiles; the first that fits is it."""

    gpus: tuple[tuple[str, str], ...] = ()
    migs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the names in YAML, or in what a file has.

        Raises:
            ConfigError: All that is wrong, a line each.
        """
        if isinstance(value, cls):
            return value
        with checked(value) as place:
            place.only(("gpus", "mig"))
            found = [_patterns(place.each(key)) for key in ("gpus", "mig")]
        return cls(*found)

    def write(self) -> dict[str, list[dict[str, str]]]:
        """Return them as a file has them."""
        return {
            key: [{"pattern": pattern, "name": name} for pattern, name in pairs]
            for key, pairs in (("gpus", self.gpus), ("mig", self.migs))
            if pairs
        }


def _patterns(places: list[Place]) -> tuple[tuple[str, str], ...]:
    found = []
    for place in places:
        place.only(("pattern", "name"))
        pattern = place.take("pattern", text, "")
        name = place.take("name", resource_name, "")
        place.need("pattern", "name")
        found.append((pattern, name))
    return tuple(found)
