"""XIDs: the numbers with which NVIDIA's driver names errors, and which of them count.

The meanings are in our words. The actions are those of NVIDIA's catalogue of 2026 for A100 and
newer GPUs, and of its older guide for a few XIDs of older GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

DOUBLE_BIT: Final = 48
"""The XID of an uncorrected ECC error. NVML has its own kind of event for it, which counts the
same."""


class Action(Enum):
    """What an XID calls for."""

    NONE = "nothing"
    APPLICATION = "restart the application"
    RESET = "reset the GPU"
    REBOOT = "reboot the node"
    CHECK = "check power cables and seating"
    UPDATE = "update driver and firmware"
    SUPPORT = "contact support"

    @property
    def is_harmless(self) -> bool:
        """Whether the GPU can be allocated to the next container as it is."""
        return self in {Action.NONE, Action.APPLICATION}

    @property
    def needs_reset(self) -> bool:
        """Whether the GPU does not recover by itself."""
        return self in {Action.RESET, Action.REBOOT, Action.CHECK, Action.SUPPORT}


@dataclass(frozen=True, slots=True)
class Xid:
    """One XID."""

    number: int
    meaning: str
    action: Action

    def __str__(self) -> str:
        return f"XID {self.number} ({self.meaning})"


def known(number: int) -> Xid:
    """Return the catalogue's entry for an XID, or an entry for an unknown one."""
    return CATALOGUE.get(number) or Xid(number, "not in the catalogue", Action.SUPPORT)


@dataclass(frozen=True, slots=True)
class Checks:
    """Which XIDs make a GPU unhealthy: ``enabled``, then ``disabled``, then the catalogue says."""

    disabled: frozenset[int] = frozenset()
    enabled: frozenset[int] = frozenset()
    all_disabled: bool = False
    all_enabled: bool = False

    def count(self, number: int) -> bool:
        """Return whether an XID makes a GPU unhealthy."""
        if self.all_enabled or number in self.enabled:
            return True
        if self.all_disabled or number in self.disabled:
            return False
        return not known(number).action.is_harmless


def parse_checks(disable: str, enable: str) -> tuple[Checks, list[str]]:
    """Return the checks of DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS, and their faults.

    Each is ``all``, ``xids`` or a comma-separated list of XIDs. Other entries are ignored.
    """
    problems: list[str] = []
    no_xids, disabled = _parsed("DP_DISABLE_HEALTHCHECKS", disable, problems)
    all_xids, enabled = _parsed("DP_ENABLE_HEALTHCHECKS", enable, problems)
    return Checks(disabled, enabled, no_xids, all_xids), problems


def _parsed(name: str, text: str, problems: list[str]) -> tuple[bool, frozenset[int]]:
    entries = [entry.strip() for entry in text.split(",")]
    words = {entry for entry in entries if entry.lower() in {"all", "xids"}}
    numbers = {entry for entry in entries if entry.isascii() and entry.isdigit()}
    problems += [
        f"{name}: {entry!r} is ignored: it is neither a number of an XID, nor all or xids"
        for entry in entries
        if entry and entry not in words | numbers
    ]
    return bool(words), frozenset(map(int, numbers))


_TABLE: Final[Mapping[Action, Mapping[int, str]]] = {
    Action.NONE: {
        14: "test of error reporting",
        37: "method that the graphics firmware does not have",
        38: "graphics firmware was too slow",
        43: "an application's fault stopped its channel",
        44: "fault while switching contexts",
        63: "a memory row will be remapped, or a page retired",
        66: "forbidden register access by an application",
        67: "forbidden access by an application",
        92: "many single-bit memory errors",
        93: "the InfoROM was written too often",
        106: "test message of the management controller",
        107: "silent test message of the management controller",
        108: "an address of another GPU could not be translated",
        121: "error on the chip-to-chip link, corrected",
        137: "forbidden access over NVLink",
        141: "error in the fast path of a channel",
        147: "NVLink 5: error in TREX",
        148: "NVLink 5: error in the link power control",
        152: "deep learning accelerator: memory fault",
        153: "deep learning accelerator: timeout",
        154: "the driver's advice on recovery changed",
        157: "retiring a faulty part failed",
        159: "error on the coherent interface",
        160: "a memory channel will be retired",
        161: "retiring a memory channel failed",
        162: "power smoothing is on again",
        163: "power smoothing is off",
        164: "power smoothing: little lifetime left",
        165: "power smoothing: no lifetime left",
    },
    Action.APPLICATION: {
        8: "a channel stopped making progress",
        11: "invalid commands: missing hardware",
        13: "an application's fault in the graphics engine",
        25: "invalid commands: illegal notification",
        31: "an application used memory that is not its own",
        32: "invalid commands from the command fetcher",
        45: "a channel was removed after an earlier error",
        60: "fault of the security engine",
        68: "video decoder 0",
        69: "an application used a graphics class wrongly",
        80: "commands arrived damaged",
        94: "memory error, contained to one application",
        **{39 + n: f"copy engine {n}" for n in range(3)},
        **{70 + n: f"copy engine {3 + n}" for n in range(3)},
        **{75 + n: f"copy engine {6 + n}" for n in range(3)},
        82: "JPEG engine 0",
        83: "video decoder 1",
        84: "video decoder 2",
        85: "copy engine 9",
        86: "optical flow engine 0",
        88: "video decoder 3",
        89: "video decoder 4",
        **{96 + n: f"video decoder {5 + n}" for n in range(3)},
        **{99 + n: f"JPEG engine {1 + n}" for n in range(7)},
        **{126 + n: f"copy engine {10 + n}" for n in range(10)},
        139: "optical flow engine 1",
    },
    Action.RESET: {
        46: "the GPU does not answer",
        DOUBLE_BIT: "memory error that could not be corrected",
        61: "the internal controller stopped at a breakpoint",
        62: "the internal controller halted",
        64: "remapping a memory row, or retiring a page, failed",
        74: "NVLink error",
        95: "memory error that may have reached any application",
        109: "an application could not be switched away from",
        110: "security fault",
        119: "the system processor did not answer in time",
        120: "the system processor failed",
        136: "NVLink could not be trained",
        140: "memory errors were left unrecovered",
        143: "the GPU could not be initialized",
        144: "NVLink 5: error in SAW",
        145: "NVLink 5: error in RLW",
        146: "NVLink 5: error in TLW",
        149: "NVLink 5: link down or firmware error",
        150: "NVLink 5: management engine",
        155: "NVLink was taken down by software",
        156: "a faulty part will be retired",
        158: "the GPU timed out for good",
        166: "NVLink: error in encryption",
        169: "the security engine halted",
        170: "NVLink: error in secure operation",
        171: "memory error outside the chip that could not be corrected",
        172: "memory error inside the chip that could not be corrected",
    },
    Action.REBOOT: {
        79: "the GPU is off the PCIe bus",
        151: "changing encryption keys failed",
        167: "PCIe timed out for good",
    },
    Action.CHECK: {54: "the board lacks auxiliary power"},
    Action.UPDATE: {78: "a virtual GPU could not be started"},
    Action.SUPPORT: {
        57: "setting up the memory interface failed",
        58: "the memory interface is unstable",
        142: "video encoder 3",
        168: "the GPU has less memory than it should",
    },
}


CATALOGUE: Final[Mapping[int, Xid]] = {
    number: Xid(number, meaning, action)
    for action, meanings in _TABLE.items()
    for number, meaning in meanings.items()
}
"""All known XIDs by number. The catalogue names no action for 162 to 172: theirs is a
cautious guess."""
