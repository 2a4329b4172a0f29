"""Names of resources, as Kubernetes accepts them: `example.com/gpu`."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

_MAX_DOMAIN: Final = 244  # the kubelet's limit of 253, minus its prefix "requests."
_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_NAME: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


def resource_name_problem(name: str) -> str:
    """Return what is wrong with ``name`` as an extended resource, or an empty string."""
    domain, slash, last = name.partition("/")
    if not slash:
        return "it needs a domain, as in example.com/gpu"
    if "kubernetes.io/" in name or name.startswith("requests."):
        return "kubernetes.io/ and requests. are reserved by Kubernetes"
    if len(domain) > _MAX_DOMAIN or not re.fullmatch(_DOMAIN, domain):
        return (
            f"the domain must be lower-case labels of letters, digits and hyphens with dots "
            f"between them, {_MAX_DOMAIN} characters at most"
        )
    if not re.fullmatch(_NAME, last):
        return (
            "the name after the slash must be 1 to 63 letters, digits, '-', '_' or '.', with a "
            "letter or digit at both ends"
        )
    return ""


def check_resource_name(name: str) -> None:
    """Check the name of a resource in a setting.

    Raises:
        ValueError: It is not valid.
    """
    if problem := resource_name_problem(name):
        raise ValueError(f"is not the name of a resource: {problem}")


RESOURCE_NAME: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "check": check_resource_name,
        "schema": {
            "pattern": f"^{_DOMAIN}/{_NAME}$",
            "maxLength": _MAX_DOMAIN + 64,
            "not": {"pattern": r"kubernetes\.io/|^requests\."},
        },
    }
)
"""What a field of `Settings` that has the name of a resource has as its metadata."""
