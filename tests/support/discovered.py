"""What a plugin discovers now, in the forms in which tests compare it."""

import deviceplugin as dp


def found(plugin: dp.Plugin) -> dict[str, dp.Device]:
    """Return the devices, by id."""
    return {device.id: device for device in plugin.discover()}


def reasons(plugin: dp.Plugin) -> dict[str, str]:
    """Return why each device is unhealthy or degraded; empty for one that is neither."""
    return {one.id: one.health.reason for one in plugin.discover()}


def unhealthy(plugin: dp.Plugin) -> dict[str, str]:
    """Return why devices are unhealthy, of those that are."""
    return {one.id: one.health.reason for one in plugin.discover() if not one.health}


def degraded(plugin: dp.Plugin) -> dict[str, str]:
    """Return why devices are degraded, of those that are."""
    all_of_them = plugin.discover()
    return {one.id: one.health.reason for one in all_of_them if one.health.state == "degraded"}
