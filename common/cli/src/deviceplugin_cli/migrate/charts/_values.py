"""Helm values, whichever chart they are for."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from deviceplugin.kit.migration import Workload
from deviceplugin_cli.migrate._containers import Found
from deviceplugin_cli.migrate.charts._app_template import is_app_template, of_app_template
from deviceplugin_cli.migrate.charts._flat_charts import image_of, is_flat, of_flat
from deviceplugin_cli.migrate.charts._rendering import Values

_IMAGES: Final = {"nvidia-device-plugin": "nvcr.io/nvidia/k8s-device-plugin"}
"""The images of charts that no key of their values tells from others."""
PLUGIN_NAME: Final = re.compile("plugin|device|gpu")
"""What is in the names of device plugins and of their charts."""
_DEEPEST: Final = 5
"""Charts in charts that are looked at."""


def of_values(values: Values, configuration: str | None, depth: int = 0) -> Iterator[Found]:
    """Yield what values install, and what the values in them do, as those of subcharts.

    What is inside of another that is known is that one's.

    Raises:
        ConfigError: Something is not what the chart has there.
    """
    content = values.see()
    if not isinstance(content, Mapping):
        return
    if is_app_template(values):
        yield from of_app_template(values, configuration)
    elif is_flat(values):
        yield from of_flat(values, configuration)
    else:
        if not depth or "image" in content or PLUGIN_NAME.search(values.chart):
            yield _of_vendor(values, configuration)
        for key in content if depth < _DEEPEST else ():
            inside = replace(values, root=(*values.root, key), chart=str(key))
            yield from of_values(inside, configuration, depth + 1)


def _of_vendor(values: Values, configuration: str | None) -> Found:
    """Return the values as they are: what they mean, the plugins know."""
    content = values.see()
    name, tag = image_of(values)
    workload = Workload(
        place=values.place,
        image=name or _IMAGES.get(values.chart, ""),
        tag=tag,
        configuration=configuration,
        values=content,
        account=values.source.account,
        root=values.root,
    )
    return Found(
        workload,
        values.document,
        content,
        values.root,
        content,
        release=values.release,
        scope=values.root,
    )
