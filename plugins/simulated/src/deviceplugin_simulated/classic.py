"""The devices that the classic variables describe."""

import deviceplugin as dp
from deviceplugin_simulated.machine import Pattern, annotation_problem, id_problem
from deviceplugin_simulated.settings import SimulatedSettings


def classic_pattern(settings: SimulatedSettings) -> Pattern:
    """Return the pattern of the devices of ``settings``.

    Raises:
        ConfigError: Their ids would be too long, or invalid in the names of annotations.
    """
    value = f"{{{settings.value_form}}}"
    prefix, node = settings.device_id_prefix, settings.node
    last = f"{prefix}-{node}-{max(0, settings.number_devices - 1)}"
    if problem := id_problem(last):
        raise dp.ConfigError(
            f"device-id-prefix {prefix!r} and node-name {node!r} cannot be combined: "
            f"id {last!r} {problem}"
        )
    annotation = f"{settings.annotation_prefix}-{last}"
    if settings.annotation_prefix and (problem := annotation_problem(annotation)):
        raise dp.ConfigError(
            f"annotation-prefix {settings.annotation_prefix!r} does not make the name of an "
            f"annotation: {annotation!r} {problem}"
        )
    return Pattern(
        resource=settings.resource,
        count=settings.number_devices,
        id=f"{prefix}-{node}-{{index}}",
        node=node,
        annotations=(
            {f"{settings.annotation_prefix}-{{id}}": ""} if settings.annotation_prefix else {}
        ),
        envs={f"{settings.env_prefix}_{{id}}": f"/dev/{value}"} if settings.env_prefix else {},
        nodes=(
            [dp.DeviceNode(f"/dev/{settings.device_file_prefix}-{value}")]
            if settings.device_file_prefix
            else []
        ),
    )
