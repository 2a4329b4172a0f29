"""The license of a virtual GPU: what its state is, and what follows for the GPU's health."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from deviceplugin_gpu.snapshot import License

GRACE: Final = 600.0
"""Seconds since the boot, or since the driver is back, in which nvidia-gridd may get a license.

A virtual GPU without one has its full speed for about 20 minutes.
"""
MISSING: Final = "vGPU license missing: see the log of nvidia-gridd"
_ACQUIRING: Final = "vGPU license is being acquired"


@dataclass(frozen=True, slots=True)
class LicenseState:
    """What is to be said of a license."""

    name: str = ""
    """``licensed``, ``expiring``, ``acquiring`` or ``unlicensed``; empty if the GPU needs none."""
    wear: str = ""
    """Why the GPU is degraded."""
    fault: str = ""
    """Why it is unhealthy."""
    expires: float | None = None
    """In Unix seconds."""


@dataclass(frozen=True, slots=True)
class LicenseRules:
    """What the settings say of licenses."""

    required: bool = False
    """Whether a GPU is unhealthy without one."""
    warning: float = 3600.0
    """Seconds before its end at which a license is expiring."""

    def judge(self, found: License | None, now: float, *, acquiring: bool) -> LicenseState:
        """Return the state at ``now``, in Unix seconds.

        While ``acquiring``, a GPU without a license is not degraded: that passes by itself. The
        driver decides whether there is one, not the clock, which may be wrong after a boot.
        """
        if found is None:
            return LicenseState()
        if not found.licensed:
            name, why = ("acquiring", _ACQUIRING) if acquiring else ("unlicensed", MISSING)
            fault = why if self.required else ""
            return LicenseState(name, "" if fault or acquiring else why, fault)
        if found.expires is None or found.expires - now >= self.warning:
            return LicenseState("licensed", expires=found.expires)
        end = datetime.fromtimestamp(found.expires, UTC)
        why = f"vGPU license expires at {end:%Y-%m-%dT%H:%M:%SZ}, and was not renewed"
        return LicenseState("expiring", why, expires=found.expires)


DEFAULT: Final = LicenseRules()
