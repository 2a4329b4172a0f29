"""Names of resources, and the setting that gives them."""

import re
from dataclasses import dataclass
from typing import Final

from deviceplugin.kit.configuration import as_argument, list_of, needed, record, text

DOMAIN: Final = "nvidia.com"
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)


def resource_name(given: str) -> str:
    """Return the full name of a resource. Without a domain it gets NVIDIA's.

    Raises:
        ValueError: It is not a resource name. The message continues after the value.
    """
    domain, slash, name = given.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not domain):
        raise ValueError("is not the name of a resource, such as gpu or nvidia.com/gpu")
    return f"{domain or DOMAIN}/{name}"


RESOURCE: Final = text(strip=True).to(resource_name)
_PATTERN: Final = text(r"\S", "a string", strip=True)


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of resources by patterns of models and MIG profiles. The first that matches applies."""

    gpus: tuple[tuple[str, str], ...] = ()
    migs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Named:
    pattern: str
    name: str


_PAIRS: Final = list_of(
    record(_Named, {"pattern": needed(_PATTERN), "name": needed(RESOURCE)}).to(
        lambda one: (one.pattern, one.name),
        write=lambda pair: {"pattern": pair[0], "name": pair[1]},
    )
)
NAMING: Final = record(
    Naming, {"gpus": as_argument(_PAIRS, "gpus"), "mig": as_argument(_PAIRS, "migs")}
)
