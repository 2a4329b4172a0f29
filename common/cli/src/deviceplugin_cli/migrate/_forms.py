"""The forms in which people keep a device plugin, by the kind of the document."""

from collections.abc import Iterator

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Workload
from deviceplugin_cli.migrate._containers import Found, of_daemon_set
from deviceplugin_cli.migrate._documents import Document, Input
from deviceplugin_cli.migrate._values import of_values


def workloads(source: Input, configuration: str | None) -> Iterator[Found]:
    """Yield the containers of DaemonSets, Helm values, and objects; raise ``ConfigError``."""
    for one in source.documents:
        if one.kind == "DaemonSet":
            yield from _of_daemon_set(one, source, configuration)
        elif not one.kind and "apiVersion" not in one.content:
            yield of_values(one, source, configuration)
        elif one.kind and "/" in str(one.content.get("apiVersion", "")):
            yield _of_object(one, source, configuration)


def _of_daemon_set(document: Document, source: Input, configuration: str | None) -> list[Found]:
    try:
        return list(of_daemon_set(document, source, configuration))
    except ConfigError as error:
        if document.place not in source.lenient:
            raise
        source.skipped.append(f"{error}: skipped")
        return []


def _of_object(document: Document, source: Input, configuration: str | None) -> Found:
    """Return an object that an operator reads: the plugins know their peers' by the kind."""
    workload = Workload(
        place=f"{document.place}: {document.kind} {document.name}",
        values=document.content,
        kind=document.kind,
        configuration=configuration,
        account=source.account,
        root=(document.number,),
    )
    return Found(workload, document, {}, (document.number,), {})
