"""The command ``simulated-device-plugin``."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

import deviceplugin as dp
from deviceplugin.kit.hosting import MOUNTED, Hosted
from deviceplugin_simulated import scenario
from deviceplugin_simulated.plugin import SimulatedPlugin
from deviceplugin_simulated.settings import SimulatedSettings


def main() -> NoReturn:
    """Run ``simulated-device-plugin``, or its command ``ctl``."""
    dp.main(
        SimulatedPlugin,
        settings=SimulatedSettings,
        commands={"ctl": ctl},
        description="Offer devices that exist in the configuration only, and let them fail as real "
        "ones do: for tests and demonstrations without hardware.",
    )


def hosted() -> Hosted[SimulatedSettings]:
    """Return the plugin for ``device-plugins``."""
    owned = {
        "devices": "it names a file, which the manifest would have to mount",
        "state-file": MOUNTED,
        "control-socket": "the manifest would have to mount its directory",
    }
    return Hosted(SimulatedPlugin, SimulatedSettings, _resources, owned)


def _resources(settings: SimulatedSettings) -> Iterable[str]:
    devices = scenario.load(settings).devices
    return dict.fromkeys([device.resource for device in devices] or [settings.resource])


def ctl(argv: Sequence[str]) -> int:
    """Make devices of a running plugin fail, recover, vanish and come back."""
    from deviceplugin_simulated import ctl_command  # a plugin on a node never needs this

    return ctl_command.run(argv)
