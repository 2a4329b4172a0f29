"""The configuration after it was read and checked, and the choices that it has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from deviceplugin.kit.sharing import MOST

UNLIMITED: Final = 1000
"""Shares of a device whose count is ``unlimited``."""
MAX_COUNT: Final = MOST
"""The largest number of shares of a device, and of uses of a path."""

CAMERAS: Final = "video4linux"
ABILITIES: Final = {
    "drm": ("card", "display", "render"),
    "input": ("joystick", "keyboard", "keys", "pointer", "touch"),
    "sound": ("capture", "midi", "playback"),
    CAMERAS: (
        *("capture", "codec", "output"),
        *("h264", "hevc", "mjpeg", "nv12", "vp8", "vp9", "yuyv"),
    ),
}
"""What devices can do, by subsystem."""

Identity = Literal["path", "serial", "port"]
Policy = Literal["spread", "pack"]


@dataclass(frozen=True, slots=True)
class PathSpec:
    """Paths that match a pattern, as device nodes or mounts."""

    path: str
    mount_path: str = ""
    permissions: str = "mrw"
    is_mount: bool = False
    read_only: bool = False
    limit: int = 1
    """How often one match may be used while other paths of the group have more matches."""
    optional: bool = False
    abilities: tuple[str, ...] = ()
    """What the device of a match must be able to do; see ``Selector``."""


@dataclass(frozen=True, slots=True)
class UsbSpec:
    """USB devices of a kind."""

    vendor: int
    product: int
    serial: str = ""
    """The serial number; any if empty."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Devices of a subsystem in sysfs. Empty fields match anything.

    Strings are patterns; vendor and product are hexadecimal numbers.
    """

    subsystem: str
    name: str = ""
    """The kernel's name, such as ``ttyUSB0``."""
    vendor: int | None = None
    product: int | None = None
    serial: str = ""
    driver: str = ""
    pci_class: str = ""
    """Leading hexadecimal digits of the class of the nearest PCI device."""
    link: str = ""
    """A link that udev has made for it, such as ``/dev/serial/by-id/*``."""
    properties: Mapping[str, str | None] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)
    """Values of attributes. None means that the attribute must be absent."""
    abilities: tuple[str, ...] = ()
    """What it must be able to do, by names of ``ABILITIES``."""
    excluded: tuple["Selector", ...] = ()
    """A device that any of these matches is not selected. Their subsystem is ignored."""


@dataclass(frozen=True, slots=True)
class Group:
    """One way to find devices of an entry: by paths, by USB ids, or by a selector."""

    count: int = 1
    paths: tuple[PathSpec, ...] = ()
    usb: tuple[UsbSpec, ...] = ()
    select: Selector | None = None
    nodes: tuple[str | Selector, ...] = ()
    """Subsystems whose nodes behind the device replace its own. ``vfio`` means what VFIO has for
    it. A selector picks some nodes of a subsystem."""
    shared: tuple[str, ...] = ()
    """Paths of device nodes that a container also gets, once for all of its devices."""
    per_match: bool = True
    """Whether each match is a device. Otherwise all matches are one device."""
    mount_path: str = ""
    permissions: str = "rw"

    @property
    def asks_abilities(self) -> bool:
        """Whether what is found depends on abilities, which can change without an event."""
        by_path = any(spec.abilities for spec in self.paths)
        return by_path or any(one.abilities for one in self.selectors)

    @property
    def selectors(self) -> tuple[Selector, ...]:
        """All selectors of the group, including nested ones."""
        found = [self.select, *self.nodes]
        outer = [one for one in found if isinstance(one, Selector)]
        return (*outer, *(inner for one in outer for inner in one.excluded))


@dataclass(frozen=True, slots=True)
class Check:
    """How the health of a device is checked, besides its existence. Times are in seconds."""

    open: bool = False
    command: tuple[str, ...] = ()
    timeout: float = 2.0
    reset: tuple[str, ...] = ()
    """The command that resets a device; there is none if it is empty."""
    reset_timeout: float = 60.0
    properties: Mapping[str, str] = field(default_factory=dict)
    interval: float = 10.0
    failures: int = 1
    successes: int = 1

    @property
    def is_trivial(self) -> bool:
        """Whether only existence is checked."""
        return not (self.open or self.command or self.properties)


@dataclass(frozen=True, slots=True)
class ExtraMount:
    """A mount that each device brings. Both paths are templates."""

    path: str
    mount_path: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource."""

    name: str
    groups: tuple[Group, ...] = ()
    identity: Identity | None = None
    """What ids are computed from. The default is the path for paths and USB, and the serial number
    for selectors."""
    envs: Mapping[str, str] = field(default_factory=dict)
    joined: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are joined by commas over the devices of a container."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ExtraMount, ...] = ()
    cdi: tuple[str, ...] = ()
    health: Check = Check()
    policy: Policy = "spread"
    problem: str = ""
    """What is wrong with it. Then it offers nothing, and reserves what it may match."""


def identity_of(entry: Entry, group: Group) -> Identity:
    """Return what ids of the group's devices are computed from."""
    return entry.identity or ("serial" if group.select or group.nodes else "path")


@dataclass(frozen=True, slots=True)
class Rule:
    """An entry of smarter-device-manager. Each matching path below /dev is a resource."""

    pattern: str
    count: int
    problem: str = ""
    """What is wrong with it. Then it offers nothing, and reserves what it matches."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """All entries, from a file or from flags."""

    entries: tuple[Entry, ...] = ()
    rules: tuple[Rule, ...] = ()
    is_given: bool = field(default=False, compare=False)
    """Whether there is a list of devices, which may be empty."""
    place: str = field(default="", compare=False)
    """Where in a file they are, or would be: file, line and key."""
    left_out: tuple[str, ...] = ()
    """Entries that were skipped, with their place and the reason."""

    @property
    def problems(self) -> list[str]:
        """What is wrong with entries that are in here all the same."""
        every: tuple[Entry | Rule, ...] = (*self.entries, *self.rules)
        return [one.problem for one in every if one.problem]


_LABEL: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
LONGEST_DOMAIN: Final = 244
"""The kubelet's limit of 253, less its prefix ``requests.``."""
DOMAIN: Final = rf"^(?=.{{1,{LONGEST_DOMAIN}}}$){_LABEL}(\.{_LABEL})*$"
RESERVED: Final = r"^requests\.|kubernetes\.io$"
"""Domains that Kubernetes keeps to itself."""
NAME: Final = r"^\s*[a-z0-9][-a-z0-9]{0,61}[a-z0-9]\s*$"
HEXADECIMAL: Final = r"^(0[xX])?[0-9a-fA-F]{1,4}$"
PCI_CLASS: Final = r"^(0[xX])?[0-9a-fA-F]{1,6}$"
PERMISSIONS: Final = r"^(?!.*(.).*\1)[mrw]*$"
CDI: Final = r"^[^/=\s]+/[^/=\s]+=\S+$"
SUBSYSTEM: Final = r"^[A-Za-z0-9_-]+$"
NODE: Final = r"^/dev/[^*?\[\\]+$"

TYPES: Final = ("Device", "Mount")
IDENTITIES: Final = get_args(Identity)
POLICIES: Final = get_args(Policy)
UNLIMITED_WORD: Final = "unlimited"
NODE_AS_MOUNT: Final = (
    "is a device node, which a container cannot open as a mount: use paths, or with beside select"
)
MOST_LOOKS: Final = 1000
"""The most checks in a row that a change of health may need."""
SETTINGS: Final = {
    "plugin-directory": "plugin-dir",
    "listen": "http-address",
    "devices": "device",
}
"""Keys of generic-device-plugin's file, which are its flags too, and ours."""
LEVELS: Final = {"all": "debug", "warn": "warning", "none": "error"}
"""The log levels of generic-device-plugin, and ours."""
