"""The command line of generic-device-plugin, for manifests that were written for it."""

from collections.abc import Iterator, Sequence
from typing import Final

from deviceplugin_generic.configuration import choices

_FLAGS: Final = {
    f"--{name}": f"--{choices.SETTINGS[name]}" for name in ("listen", "plugin-directory")
}
_LEVEL: Final = "--log-level"


def translated(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the arguments with its flags and its log levels replaced by ours."""
    is_level = False
    for argument in arguments:
        if is_level:
            yield choices.LEVELS.get(argument, argument)
            is_level = False
            continue
        flag, equals, value = argument.partition("=")
        if equals and flag == _LEVEL:
            value = choices.LEVELS.get(value, value)
        is_level = argument == _LEVEL
        yield f"{_FLAGS.get(flag, flag)}{equals}{value}"
