"""Which resource names the kubelet accepts."""

import re

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_QUOTA_PREFIX = "requests."
"""Names must stay valid with this prefix, because resource quotas use it."""

_MAX_DOMAIN = 253 - len(_QUOTA_PREFIX)
_MAX_NAME = 63


def is_extended_resource(name: str) -> bool:
    """Return whether the kubelet accepts ``name`` as the resource of a plugin."""
    domain, slash, rest = name.partition("/")
    return (
        slash == "/"
        and "kubernetes.io/" not in name
        and not name.startswith(_QUOTA_PREFIX)
        and len(domain) <= _MAX_DOMAIN
        and len(rest) <= _MAX_NAME
        and _DOMAIN.fullmatch(domain) is not None
        and _NAME.fullmatch(rest) is not None
    )
