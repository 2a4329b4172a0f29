"""What a report about a cluster needs, and where it comes from."""

import json
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from deviceplugin.apiserver import ApiServerError
from deviceplugin.tools import _command_line
from deviceplugin_cli.diagnosis import _causes
from deviceplugin_cli.diagnosis._answers import READ, Answer, ask, ask_all, command, in_pod
from deviceplugin_cli.diagnosis._archive import Archive
from deviceplugin_cli.diagnosis._causes import Diagnosis, diagnose
from deviceplugin_cli.diagnosis._cluster import DAEMON_SETS, Cluster, read_cluster
from deviceplugin_cli.diagnosis._kubectl import Ran
from deviceplugin_cli.diagnosis._masks import masked_object
from deviceplugin_cli.diagnosis._options import Tools
from deviceplugin_cli.diagnosis._pods import PluginPod

_LINES: Final = 5000
_BYTES: Final = 2 * 1024**2


class _Kind(NamedTuple):
    plural: str
    group: str = "api/v1"
    is_of_plugins: bool = True
    """Whether objects in the plugins' namespaces are meant, or those of the whole cluster."""
    query: Mapping[str, str] = {}
    node: str = ""
    """The field by which those of one node are selected, if there is one."""


_KINDS: Final = (
    _Kind("pods", node="spec.nodeName"),
    _Kind(DAEMON_SETS, "apis/apps/v1"),
    _Kind("deployments", "apis/apps/v1"),
    _Kind("configmaps"),
    _Kind("serviceaccounts"),
    _Kind("networkpolicies", "apis/networking.k8s.io/v1"),
    _Kind("resourcequotas"),
    _Kind("events"),
    _Kind("events", query={"fieldSelector": "involvedObject.kind=Node"}, is_of_plugins=False),
    _Kind("nodes", is_of_plugins=False, node="metadata.name"),
    _Kind("deviceplugins", "apis/deviceplugin.dev/v1alpha1", is_of_plugins=False),
    _Kind("deviceclasses", "apis/resource.k8s.io/v1", is_of_plugins=False),
    _Kind("resourceslices", "apis/resource.k8s.io/v1", is_of_plugins=False),
)
"""The objects that are read. Secrets are not, nor are the pods that use devices."""
_PAGES: Final = {"metrics.txt": "/metrics", "readyz.txt": "/readyz", "healthz.txt": "/healthz"}
"""What else a plugin serves, by name of the file."""


def collect(tools: Tools, archive: Archive) -> Diagnosis:
    """Put everything into the archive; raise ``ApiServerError`` or ``ConfigError``."""
    cluster = read_cluster(tools.asked, tools.reader)
    visit = partial(_of_pod, cluster=cluster, tools=tools, archive=archive)
    _versions(tools, archive)
    spaces = {pod.namespace for pod in cluster.pods} | {tools.asked.namespace} - {""}
    for kind in _KINDS:
        for space in sorted(spaces) if kind.is_of_plugins else [""]:
            _objects(kind, space, tools, archive)
    diagnosis = diagnose(
        tools.asked, cluster, ask_all(cluster, visit, tools.kubectl, tools.progress)
    )
    archive.add("doctor.txt", _causes.text(diagnosis, colour=False), is_needed=True)
    document = _command_line.to_json(_causes.document(diagnosis))
    archive.add("doctor.json", document, is_needed=True)
    return diagnosis


def _versions(tools: Tools, archive: Archive) -> None:
    ran = tools.kubectl.run("version", "--output=json")
    try:
        versions = {"kubectl": json.loads(ran.out)}
    except ValueError:
        versions = {"kubectl": ran.error}
    archive.add("versions.json", _command_line.to_json(_command_line.document(1, versions)))


def _objects(kind: _Kind, space: str, tools: Tools, archive: Archive) -> None:
    """Add the objects of a kind: of a namespace, or of all."""
    where = f"namespaces/{space}/" if space else ""
    name = f"objects/{space or 'cluster'}/{kind.plural}.json"
    chosen = dict(kind.query)
    if kind.node and tools.asked.node:
        chosen["fieldSelector"] = f"{kind.node}={tools.asked.node}"
    path = f"/{kind.group}/{where}{kind.plural}"
    try:
        found = tools.reader.read(path, kind.plural, masked_object, chosen)
    except ApiServerError as error:
        archive.skip(name, str(error))
        return
    archive.add(name, _lines(found))


def _lines(found: Iterable[Any]) -> str:
    """Return objects as JSON, one a line, so that a part of them can be read as well."""
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found)


def _of_pod(pod: PluginPod, cluster: Cluster, tools: Tools, archive: Archive) -> Answer:
    """Ask a pod as the doctor does, and for more; what it says goes into the archive at once."""
    folder = f"nodes/{pod.node or 'none'}/{pod.namespace}_{pod.name}"
    answer = ask(pod, cluster, tools.asked, tools.kubectl)
    for name, text in answer.said.items():
        archive.add(f"{folder}/{name}", text)
    answer.said.clear()
    if answer.silence:
        archive.skip(f"{folder}/doctor.json", answer.silence)
    else:
        held = command(pod, tools.kubectl, "devices")
        _add(archive, f"{folder}/kubelet-devices.json", held)
        for name, page in _PAGES.items():
            ran = in_pod(pod, tools.kubectl, "python3", "-c", READ, page)
            _add(archive, f"{folder}/{name}", ran)
    for container in pod.containers:
        for more in ((), ("--previous",)):
            _log(pod, container, more, tools, archive, folder)
    return answer


def _add(archive: Archive, name: str, ran: Ran) -> None:
    if ran.out:
        archive.add(name, ran.out)
    if ran.status != 0:
        archive.skip(name, ran.error)


def _log(
    pod: PluginPod,
    container: str,
    more: tuple[str, ...],
    tools: Tools,
    archive: Archive,
    folder: str,
) -> None:
    where = ("--namespace", pod.namespace, "logs", pod.name, "--container", container)
    limits = (f"--tail={_LINES}", f"--limit-bytes={_BYTES}", "--timestamps")
    ran = tools.kubectl.run(*where, *limits, *more)
    is_absent = more and "previous terminated container" in ran.error
    if not is_absent:
        _add(archive, f"{folder}/{container}{'.previous' if more else ''}.log", ran)
