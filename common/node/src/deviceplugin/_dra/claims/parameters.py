"""What claims say about the devices of plugins that take parameters."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from deviceplugin._attribution.ownership import Claim
from deviceplugin._config import parameters
from deviceplugin._dra.claims.devices import Candidates
from deviceplugin._dra.claims.reading import Configuration
from deviceplugin._dra.claims.record import RecordedParameters
from deviceplugin._platform import hooks
from deviceplugin.errors import AllocationError, ConfigError, DevicePluginError

_VERSION = "v1"

Part = tuple[str, str]
"""A request of a claim, and a resource that its devices are of."""


class Parameters(NamedTuple):
    """The parameters of the devices of one resource that a request has."""

    value: object
    """An object of the plugin's class."""
    recorded: RecordedParameters


def head_of(kind: type, driver: str) -> Mapping[str, str]:
    """Return what says in a claim that its parameters are of ``kind``."""
    return {"apiVersion": f"{driver}/{_VERSION}", "kind": kind.__name__}


class ParameterReader:
    """Reads parameters for devices of ``driver``."""

    def __init__(self, driver: str) -> None:
        self._driver = driver

    def read(
        self, claim: Claim, found: Sequence[Candidates], before: Sequence[RecordedParameters]
    ) -> Mapping[Part, Parameters]:
        """Return the parameters of the devices ``found`` of ``claim``, as far as they take some.

        Those that the claim had ``before`` are the same again, even if defaults have changed.
        AllocationError if some are wrong, or for devices that take none, with request and key.
        """
        known = {(one.request, one.resource): one for one in before}
        groups = {(one.result.request, one.resource.name): one for one in found}
        read: dict[Part, Parameters] = {}
        for part, one in groups.items():
            kind = one.resource.plugin.parameters
            try:
                if kind is not None:
                    read[part] = self._read(kind, one, known.get(part))
                elif one.result.configurations:
                    raise ConfigError(self._refusal(one.result.configurations[-1], part[1]))
            except DevicePluginError as error:
                raise AllocationError(f"{claim}: request {part[0]}: {error}") from error.__cause__
        return read

    def _refusal(self, configuration: Configuration, resource: str) -> str:
        return (
            f"it has parameters for driver {self._driver}, from {configuration.source}, but "
            f"{resource} takes none: remove them"
        )

    def _read(self, kind: type, one: Candidates, before: RecordedParameters | None) -> Parameters:
        value: Any = None
        for configuration in one.result.configurations:  # all are checked, and the last is used
            value = self._value(kind, configuration)
        if value is None:
            value = hooks.call(kind)
        given = one.result.parameters
        if before is not None and before.given == given:
            value = _again(kind, before.used, value)
        used = hooks.call(parameters.write, value)
        recorded = RecordedParameters(one.result.request, one.resource.name, given, used)
        return Parameters(value, recorded)

    def _value(self, kind: type, configuration: Configuration) -> object:
        found, head = configuration.parameters, head_of(kind, self._driver)
        try:
            return hooks.call(parameters.read, kind, found, "parameters", head)
        except DevicePluginError as error:
            text = "; ".join(str(error).splitlines())
            raise ConfigError(f"in {configuration.source}: {text}") from error.__cause__


def _again(kind: type, used: Mapping[str, Any], instead: object) -> object:
    """Return the parameters that were ``used``, unless the plugin has other ones by now."""
    try:
        return hooks.call(parameters.read, kind, used)
    except DevicePluginError:
        return instead
