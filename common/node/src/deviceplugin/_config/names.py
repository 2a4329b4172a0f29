"""Names as Kubernetes accepts them: of resources, of DRA drivers, and of machines."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""A DNS label, of any length. These are regular expressions."""
DOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
"""What stands after the slash of a resource or of a label of an object, and a label's value."""
_MAX_DOMAIN: Final = 244  # the kubelet's limit of 253, minus its prefix "requests."
_MAX_DRIVER: Final = 63
_HOST_LABEL: Final = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST: Final = rf"{_HOST_LABEL}(\.{_HOST_LABEL})*"


def resource_name_problem(name: str) -> str:
    """Return what is wrong with ``name`` as an extended resource, or an empty string."""
    domain, slash, last = name.partition("/")
    if not slash:
        return "it needs a domain, as in example.com/gpu"
    if "kubernetes.io/" in name or name.startswith("requests."):
        return "kubernetes.io/ and requests. are reserved by Kubernetes"
    if len(domain) > _MAX_DOMAIN or not re.fullmatch(DOMAIN, domain):
        return (
            f"the domain must be lower-case labels of letters, digits and hyphens with dots "
            f"between them, {_MAX_DOMAIN} characters at most"
        )
    if not re.fullmatch(NAME, last):
        return (
            "the name after the slash must be 1 to 63 letters, digits, '-', '_' or '.', with a "
            "letter or digit at both ends"
        )
    return ""


def check_resource_name(name: str) -> None:
    """Check the name of a resource in a setting; ValueError if it is not valid."""
    if problem := resource_name_problem(name):
        raise ValueError(f"is not the name of a resource: {problem}")


RESOURCE_NAME: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "check": check_resource_name,
        "schema": {
            "pattern": f"^{DOMAIN}/{NAME}$",
            "maxLength": _MAX_DOMAIN + 64,
            "not": {"pattern": r"kubernetes\.io/|^requests\."},
        },
    }
)
"""What a field of `Settings` that has the name of a resource has as its metadata."""


def check_driver_name(text: str) -> None:
    """Raise ``ValueError`` unless ``text`` can be the name of a DRA driver, or is empty."""
    if text and (len(text) > _MAX_DRIVER or not re.fullmatch(DOMAIN, text)):
        raise ValueError(
            f"is not the name of a driver: use at most {_MAX_DRIVER} lower-case letters, digits, "
            "- and ., such as gopher.example.com"
        )


def check_instance(text: str) -> None:
    """Raise ``ValueError`` unless ``text`` can be the name of a folder, or is empty."""
    if text and not re.fullmatch(NAME, text):
        raise ValueError("is not 1 to 63 letters, digits, '-', '_' or '.', such as gpu-plugin-a")


class Cause(str):
    """A word for why a device is unhealthy."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "Cause":
        """Return ``value`` as a cause; raise ``ValueError`` if it is none."""
        if not isinstance(value, str) or not re.fullmatch(NAME, value):
            raise ValueError(f"has {value!r}, which is not a cause such as xid-79, or any")
        return cls(value)

    @classmethod
    def schema(cls) -> Mapping[str, Any]:
        return {"type": "string", "pattern": f"^{NAME}$"}


class HostName(str):
    """The name of a machine, without a port."""

    __slots__ = ()

    @classmethod
    def parse(cls, value: object) -> "HostName":
        """Return ``value`` as a name; raise ``ValueError`` if it is none."""
        if not isinstance(value, str) or not re.fullmatch(_HOST, value):
            raise ValueError(f"has {value!r}, which is not a name such as node-1.example.com")
        return cls(value)

    @classmethod
    def schema(cls) -> Mapping[str, Any]:
        return {"type": "string", "pattern": f"^{_HOST}$"}
