"""Helm values, as plugins see them."""

from collections.abc import Mapping

from deviceplugin.kit.migration import Workload
from deviceplugin_cli.migrate._containers import Found, split_image
from deviceplugin_cli.migrate._documents import Document, Input


def of_values(document: Document, source: Input, configuration: str | None) -> Found:
    """Return the values of a chart, in a document of their own."""
    values = document.content
    image = values.get("image")
    given = image if isinstance(image, Mapping) else {"repository": image}
    name, tag = split_image(str(given.get("repository") or ""))
    root = (document.number,)
    source.account.take((*root, "image"))
    workload = Workload(
        place=document.place,
        image=name,
        tag=str(given.get("tag") or tag),
        configuration=configuration,
        values=values,
        account=source.account,
        root=root,
    )
    return Found(workload, document, values, root, values)
