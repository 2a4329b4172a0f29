"""The deployments of ours that an input becomes: which of them there are, and for which nodes."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Migration
from deviceplugin_cli.migrate._compare import Made
from deviceplugin_cli.migrate._documents import items, mapping

LABELS: Final = "migrate.deviceplugin.dev"
"""The domain of the labels of nodes that a migration sets."""
PLACEHOLDER: Final = "registry.example.com"
_PUBLIC: Final = ("docker.io", "gcr.io", "ghcr.io", "mcr.microsoft.com", "nvcr.io", "quay.io")
"""Where nobody pushes an image of ours."""
_ARCHITECTURES: Final = {
    "key": "kubernetes.io/arch",
    "operator": "In",
    "values": ["amd64", "arm64"],
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ODD: Final = re.compile("[^a-z0-9]+")
_LONGEST: Final = 30
"""Characters of a suffix: names of pods and labels have 63."""
_MANIFEST_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "amd": ("resource-naming-strategy",),
    "fpga": ("mode",),
    "generic": ("devices",),
    "gpu": ("fail-on-init-error",),
    "intelgpu": ("shares",),
    "rdma": ("resourceList",),
    "simulated": ("number-devices", "env-prefix"),
}
_NAMED: Final = re.compile(
    r"(?P<name>([\w.-]+(:\d+)?/)?[a-z0-9]([a-z0-9._/-]*[a-z0-9])?)"
    r"(:(?P<tag>[A-Za-z0-9_][\w.-]*))?(@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)


@dataclass(frozen=True)
class Deployment:
    """A DaemonSet of ours, with all that it needs."""

    made: Made
    configuration: Mapping[str, Any] | Sequence[Any]
    suffix: str = ""
    """Of its names; empty if there is only one of the plugin."""
    label: str = ""
    """How the labels of a migration begin: those of its nodes, and of the peer's."""
    nodes: Sequence[Mapping[str, Any]] = ()
    """Further expressions for labels of its nodes."""
    title: str = ""
    """For which nodes, in words; empty for all."""

    @property
    def migration(self) -> Migration:
        """What the plugin said."""
        return self.made.migration

    @property
    def name(self) -> str:
        """The name of the DaemonSet and of its namespace."""
        return f"{self.migration.plugin}-device-plugin{self.suffix}"

    @property
    def pod(self) -> dict[str, Any]:
        """Fields of the pod's specification that are not as in our manifests."""
        given, place = self.made.comparison.pod, self.made.found.workload.place
        waits = {"key": self.waits, "operator": "DoesNotExist"}
        expressions = [_ARCHITECTURES, *self.nodes, waits]
        return {**given, "affinity": narrowed(place, mapping(given, "affinity"), expressions)}

    @property
    def waits(self) -> str:
        """The label of nodes on which ours is not started yet."""
        return f"{self.label}-ours"

    @property
    def stays(self) -> str:
        """The label of nodes on which the peer stays."""
        return f"{self.label}-peer"


@dataclass(frozen=True)
class Image:
    """The image of a plugin of ours."""

    name: str
    tag: str = ""
    digest: str = ""
    given: bool = field(default=True, compare=False)
    """Whether somebody named it; otherwise it is a suggestion."""

    def __str__(self) -> str:
        tag, digest = (f":{self.tag}" if self.tag else ""), self.digest
        return f"{self.name}{tag}{f'@{digest}' if digest else ''}"


def image_of(deployment: Deployment, given: str | None) -> Image:
    """Return the image that ``--image`` names, or a suggestion: ours, in the input's registry."""
    if given:
        found = _NAMED.fullmatch(given)
        if found is None:
            raise ConfigError(f"--image: {given!r} is not an image, such as {PLACEHOLDER}/gpu:1.0")
        return Image(found["name"], found["tag"] or "", found["digest"] or "")
    home = deployment.made.found.workload.image.rpartition("/")[0]
    host = home.partition("/")[0]
    is_private = ("." in host or ":" in host) and host not in _PUBLIC and "k8s.io" not in host
    name = f"{home if is_private else PLACEHOLDER}/{deployment.migration.plugin}-device-plugin"
    return Image(name, version("deviceplugin"), given=False)


def deployments(all_made: Sequence[Made], *, by_profile: bool = True) -> list[Deployment]:
    """Return one for each peer, or one for each of its configurations that nodes choose from."""
    plugins = Counter(one.migration.plugin for one in all_made)
    used: set[str] = set()
    labels: set[str] = set()
    found: list[Deployment] = []
    for made in all_made:
        plugin = made.migration.plugin
        name = made.found.document.name.rpartition("/")[2] or "values"
        names = [name] if plugins[plugin] > 1 else []
        label = f"{LABELS}/{plugin}{_unused(names, labels) if names else ''}"
        for one in _of_profiles(made, made.migration.profiles if by_profile else {}):
            parts = [*names, *([one.title] if one.title else [])]
            suffix = _unused(parts, used) if parts else ""
            found.append(replace(one, suffix=suffix, label=label))
    return found


def _of_profiles(made: Made, profiles: Mapping[str, Mapping[str, Any]]) -> Iterator[Deployment]:
    label = made.migration.profile_label
    for value, configuration in profiles.items():
        only = [{"key": label, "operator": "In", "values": [value]}]
        yield Deployment(made, configuration, nodes=only, title=value or "empty")
    rest = [{"key": label, "operator": "NotIn", "values": [*profiles]}] if profiles else []
    title = "rest" if profiles else ""
    yield Deployment(made, made.migration.configuration, nodes=rest, title=title)


def _unused(parts: Sequence[str], used: set[str]) -> str:
    """Return a suffix of names, made of ``parts``, that no other has."""
    slug = _ODD.sub("-", "-".join(parts).lower()).strip("-") or "other"
    if len(slug) > _LONGEST or slug in used:
        digest = hashlib.sha256(f"{parts} {len(used)}".encode()).hexdigest()[:6]
        slug = f"{slug[: _LONGEST - 7].rstrip('-')}-{digest}"
    used.add(slug)
    return f"-{slug}"


def narrowed(
    place: str, affinity: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return an affinity for those of its nodes only that also match ``expressions``."""
    of_node = mapping(affinity, "nodeAffinity")
    terms = items(mapping(of_node, _REQUIRED), place, "nodeSelectorTerms")
    narrow = [
        {**term, "matchExpressions": [*items(term, place, "matchExpressions"), *expressions]}
        for term in [one for one in terms if one] or [{}]  # an empty term selects nothing
    ]
    required = {_REQUIRED: {"nodeSelectorTerms": narrow}}
    return {**affinity, "nodeAffinity": {**of_node, **required}}


def manifest_keys(plugin: str) -> Sequence[str]:
    """Return the settings that our manifests have, where only an overlay replaces all of them."""
    return _MANIFEST_KEYS.get(plugin, ())
