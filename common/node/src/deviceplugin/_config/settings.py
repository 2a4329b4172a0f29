"""The settings of every plugin, read from flags, environment and file.

A settings class is a frozen dataclass. Each field is a flag (``--plugin-dir``), an environment
variable (``DP_PLUGIN_DIR``) and a key of the file (``plugin-dir``). A flag wins over the
environment, the environment over the file, and the file over the default. The docstring below a
field is its help.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Self

from deviceplugin._config import loading, node_choice
from deviceplugin._config import values as _values
from deviceplugin._config.documents import places
from deviceplugin._config.documents.places import Place
from deviceplugin._config.loading import key
from deviceplugin._config.names import Cause, HostName, check_driver_name, check_instance
from deviceplugin._config.node_choice import NodeFacts
from deviceplugin.proto.v1beta1 import PLUGIN_DIR

_NODE_NAMES = ("DP_NODE_NAME", "NODE_NAME")
"""Variables of the setting ``node-name``, which is needed before a file is read."""


def _refuse_choice(text: str) -> None:
    if text:
        raise ValueError("cannot be set: put the node's label or name into the file")


def _check_tries(tries: int) -> None:
    if tries < 1:
        raise ValueError("is not a number of tries: use 1 or more")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of every plugin. Derive a frozen dataclass from it to add your own."""

    plugin_dir: Path = Path(PLUGIN_DIR)
    """Directory of the kubelet's socket and of the plugins' sockets. The kubelet cannot be set to
    another: change it only if the directory is mounted elsewhere, or for a simulated kubelet."""
    registration: Literal["auto", "self", "watcher"] = "auto"
    """How the plugin is registered: it calls the kubelet (self), or the kubelet finds its socket in
    registry-dir (watcher). auto is self if plugin-dir exists, because that is faster after a
    kubelet restart, and watcher if only registry-dir exists."""
    registry_dir: Path = Path("/var/lib/kubelet/plugins_registry")
    """Directory in which the kubelet itself finds plugins, below its --root-dir."""
    pod_resources_socket: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
    """Socket of the kubelet's PodResources API, which reports the pods that hold devices. It is
    used if it exists: then a vanished device is forgotten as soon as no pod holds it."""
    pod_resources_interval: timedelta = timedelta(seconds=30)
    """Time between polls of the pods that hold devices, for metrics, the page and released(). The
    end of a pod can be noticed this late; its start is noticed a second after the allocation. Do
    not make it too short: all clients of a kubelet share its limit of 100 calls a second."""
    protocol: Literal["device-plugin", "dra"] = "device-plugin"
    """How the devices are offered: as by any device plugin, or by dynamic resource allocation
    (dra). It can be changed while pods hold devices, without a restart."""
    driver_name: str = dataclasses.field(
        default="", metadata={"check": check_driver_name, "empty": ""}
    )
    """Name of the DRA driver, which DeviceClasses and claims refer to. By default it is made of the
    plugin's resource: gopher.example.com for example.com/gopher."""
    instance: str = dataclasses.field(default="", metadata={"check": check_instance, "empty": ""})
    """Name of this plugin among those on the node, by which it finds the devices that were held
    before it started: the same after each start. By default that of its DaemonSet. Set it if two
    plugins share the host's network and the plugin directory."""
    node_name: str = dataclasses.field(default="", metadata={"env": "NODE_NAME"})
    """Name of this node; in a pod, spec.nodeName. DRA needs it, and it can select from the nodes of
    a file, and a file of a directory."""
    node_labels_file: Path | None = dataclasses.field(default=None, metadata={"watch": True})
    """File with the labels of this node, which select in the same way, as the component node-labels
    or the downward API writes it. It can be a flag or a variable, and has no effect in a file."""
    node_labels_wait: timedelta = timedelta(seconds=10)
    """How long a start waits for node-labels-file, which another container may be about to write.
    Then the plugin starts as on a node without labels, until the file is there."""
    node_label: str = ""
    """Key of the label that names an entry of nodes, or a file of a directory. It can be a flag or
    a variable, and has no effect in a file."""
    node_choice: str = dataclasses.field(default="", metadata={"check": _refuse_choice})
    """What was chosen for this node, and why. It cannot be set."""
    cdi_dir: Path = Path("/var/run/cdi")
    """Directory in which the container runtime finds CDI specifications. All that a container gets
    through DRA is written there."""
    driver_dir: Path = Path("/var/lib/kubelet/plugins")
    """Directory with one for each DRA driver, which has its socket and a record of each prepared
    claim. It must survive a reboot."""
    device_metadata: bool = False
    """Whether containers can read the attributes of devices that they have through DRA (KEP-5304),
    as KubeVirt does. A container that has a read-only volume at /run or /var/run cannot start then.
    """
    on_unhealthy: Literal["no-schedule", "no-execute", "report"] = "no-schedule"
    """What DRA does about an unhealthy device besides showing it in the status of its pod: no other
    pod gets it (no-schedule), its pod is evicted too (no-execute), or nothing (report)."""
    claim_status: bool = True
    """Whether DRA writes the health of devices into the status of claims. Without the right
    to that, the log says so once."""
    list_attributes: bool = False
    """Whether DRA may publish lists as attributes, such as of the NUMA nodes next to a device. API
    server and scheduler need the feature gate DRAListTypeAttributes, and selectors includes()."""
    api_server: str = dataclasses.field(default="", metadata={"check": _values.check_url})
    """URL of the API server. By default it is that of the cluster in which this process runs."""
    http_address: str = dataclasses.field(
        default="127.0.0.1:9494", metadata={"check": _values.check_address}
    )
    """Where to serve /metrics, /healthz, /readyz, /devices and the page /: host:port, :port for
    all addresses of the machine, or off. By default only this machine can connect, because without
    http-token-file there is no access control."""
    http_token_file: Path | None = None
    """File with a token. All but /healthz and /readyz is then answered only to clients that send it
    (Authorization: Bearer), and these two give no reasons to others. It is read for each request,
    so it can be replaced. Use it with TLS, or the network can read it."""
    http_cert_file: Path | None = None
    """File with a certificate in PEM, with which the port has TLS; http-key-file is needed too.
    Both are read again when they change; if they cannot be used then, the old ones stay."""
    http_key_file: Path | None = None
    """File with the private key of http-cert-file, in PEM and without a passphrase."""
    http_hosts: tuple[HostName, ...] = ()
    """Names by which clients ask for more than /healthz and /readyz, without their ports. Without
    http-token-file all but these names, localhost and addresses is refused, because a page in a
    browser could have chosen the name (DNS rebinding)."""
    discovery_interval: timedelta = timedelta(seconds=30)
    """Time between discoveries without a trigger. Events trigger a discovery for most changes; this
    one finds the rest, and costs CPU time while nothing happens. It may be at most a third of
    discovery-deadline, so raise that too."""
    discovery_deadline: timedelta = timedelta(minutes=2)
    """Devices that could not be discovered for this long are reported unhealthy. It is several
    intervals long, so that a single failure has no effect."""
    auto_repair: tuple[Cause, ...] = ()
    """Causes for which an unhealthy device that no pod uses is held, reset, checked and released,
    or any. By default only a person does that. The plugin must be able to reset its devices."""
    repair_tries: int = dataclasses.field(
        default=3, metadata={"check": _check_tries, "schema": {"minimum": 1}}
    )
    """Number of times that a device is reset for one hold, and by auto-repair in a day. Then it
    stays held. A wait before each further try is twice as long as the one before."""
    vanished_grace: timedelta = timedelta(minutes=1)
    """Least time that a vanished device stays listed as unhealthy. It covers an allocation in
    progress: forgetting a device then can crash the kubelet."""
    vanished_retention: timedelta = timedelta(hours=24)
    """Least time that a vanished device stays listed if it is unknown whether a pod holds it: the
    pod resources socket does not exist, or only the kubelet's checkpoint has the device."""
    poll_interval: timedelta = timedelta(seconds=5)
    """Time between polls of files and sockets, in case an event was lost."""
    reload: Literal["on-change", "sighup"] = "on-change"
    """When configuration files are read again: when their content changes (on-change), or only
    when the process gets SIGHUP (sighup). An invalid file is ignored."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged. Info is for changes of state only."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Form of the log: auto is text on a terminal and JSON elsewhere."""

    @classmethod
    def open_file(cls, path: Path) -> Place:
        """Return the outermost place of the configuration file at ``path``.

        In a directory that is the file with the name of this node, as ``load`` chooses it, or else
        the one called default. Override it to choose one of several files in another way.

        Raises:
            ConfigError: It cannot be read.
        """
        names = map(os.environ.get, _NODE_NAMES)
        node = NodeFacts(next(filter(None, names), ""))
        return places.of_file(node_choice.file(path, node)[0])

    @classmethod
    def from_file(cls, root: Place) -> Mapping[str, object]:
        """Return the values in the configuration file, by the keys of settings.

        ``root`` is its outermost place (`deviceplugin.kit.configuration`). A value that is a place
        is then read as the field's type; any other value is used unchanged. Override it for a file
        whose keys are not those of the settings, and record faults at their places.
        """
        if root.kind != "mapping":
            raise root.fault("must have keys and values, as in 'log-level: debug'")
        return root.keys()

    @classmethod
    def node_facts(cls) -> Mapping[str, Sequence[str]]:
        """Return what an entry of ``nodes`` can be matched by besides node and label, by its key.

        Each fact has any number of values. The keys are always the same.
        """
        return {}

    @property
    def invalid_entries(self) -> Sequence[str]:
        """What is wrong with entries that are skipped, a message for each."""
        return ()

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return the settings of a file alone, without flags and environment.

        Raises:
            ConfigError: All faults, also of entries that the process would skip.
        """
        return loading.load(cls, flags={}, file=path, environ={})


@dataclass(frozen=True, kw_only=True)
class EntrySettings(Settings):
    """Settings with a list of entries, which ``read_each`` or ``list_of`` with ``instead`` read."""

    on_invalid_entry: Literal["fail", "skip"] = "fail"
    """What a wrong entry in the list does: the start fails, and a reload is ignored (fail), or the
    other entries are offered and the wrong one is an error in the log, in /readyz, in a metric and
    as an Event (skip). By default nobody is without devices and does not notice. What cannot be
    read at all fails in any case."""


def dump(settings: Settings) -> dict[str, Any]:
    """Return all settings by key, as one would write them into a file."""
    return {key(field): written(field, getattr(settings, field.name)) for field in fields(settings)}


def written(field: "Field[Any]", value: Any) -> Any:
    """Return the value of a setting as one would write it into a file."""
    kind = field.metadata.get("kind")
    return kind.write(value) if kind else _values.write(value)


def files(settings: Settings) -> list[Path]:
    """Return the files that the settings name, besides the configuration file.

    Their fields have ``metadata={"watch": True}``. A field can also have settings of its own.
    """
    return [path for field, path in _paths(settings) if field.metadata.get("watch")]


def paths(settings: Settings) -> list[Path]:
    """Return all paths in ``settings``, also in those that a field has of its own."""
    return [path for _, path in _paths(settings)]


def _paths(settings: Settings) -> "Iterator[tuple[Field[Any], Path]]":
    for one in fields(settings):
        value = getattr(settings, one.name)
        if isinstance(value, Settings):
            yield from _paths(value)
        elif isinstance(value, Path):
            yield one, value
