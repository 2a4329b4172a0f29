"""The checks of drivers, a module for each group."""

from typing import Final

from deviceplugin_testing.conformance._check import Check, CheckGroup
from deviceplugin_testing.conformance.dra.checks import _claims, _devices, _driver, _losses

DRA_GROUPS: Final[tuple[CheckGroup, ...]] = (
    _driver.DRIVER,
    _driver.SLICES,
    _claims.GROUP,
    _devices.GROUP,
    _losses.GROUP,
)
"""In the order in which they run."""

DRA_CHECKS: Final[tuple[Check, ...]] = tuple(
    check for group in DRA_GROUPS for check in group.checks
)
"""All checks, in the order in which they are reported."""
