"""The domains of resource names: one, or several while pods move from one to the other."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import deviceplugin as dp
from deviceplugin.kit.configuration import bounded, matches
from deviceplugin_generic.configuration import choices


@dataclass(frozen=True)
class Domains:
    """The domains. Each has all resources."""

    names: tuple[str, ...] = ("devic.es",)

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the domains in a comma-separated string, or in a list of such strings.

        Raises:
            ConfigError: All errors, a line each.
        """
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise dp.ConfigError("a domain, or a list of domains, belongs here")
        names = [name.strip() for text in texts for name in text.split(",")]
        problems = [
            f"{name!r} is not lower-case labels with dots between"
            for name in names
            if not matches(name, choices.DOMAIN)
        ]
        twice = dict.fromkeys(name for name in names if names.count(name) > 1)
        problems += [f"{name!r} is given twice" for name in twice]
        if problems:
            raise dp.ConfigError("\n".join(map(bounded, problems)))
        return cls(tuple(names))

    @staticmethod
    def schema() -> Mapping[str, Any]:
        """Return what stands in a file, for editors."""
        domain = {
            "type": "string",
            "pattern": choices.DOMAIN,
            "description": "Domain of all resource names, or a list of domains",
        }
        return {"anyOf": [domain, {"type": "array", "items": domain, "minItems": 1}]}

    def write(self) -> str | list[str]:
        """Return one domain as a string, and several as a list."""
        return self.names[0] if len(self.names) == 1 else [*self.names]

    def under_each(self, devices: Iterable[dp.Device]) -> Iterator[dp.Device]:
        """Yield devices of resources of the first domain, each also under all other domains."""
        for device in devices:
            yield device
            name = device.resource.partition("/")[2]
            for other in self.names[1:]:
                yield replace(device, resource=f"{other}/{name}")


DEFAULT: Final = Domains()
