"""What the plugins' pods answer: the doctor's findings, and the devices with their health."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import filterfalse
from typing import Any, Final, TypeVar

from deviceplugin._app.exit_status import USAGE
from deviceplugin._config.documents.faults import printable
from deviceplugin.checks import Finding, Verdict, failure, unknown, warning
from deviceplugin.tools._devices_page import is_spare
from deviceplugin_cli.diagnosis._cluster import Asked, Cluster, Located
from deviceplugin_cli.diagnosis._kubectl import Kubectl, Ran
from deviceplugin_cli.diagnosis._masks import said
from deviceplugin_cli.diagnosis._pods import PluginPod
from deviceplugin_cli.fleet._progress import Progress

SIDE_BY_SIDE: Final = 8
"""Pods that are asked at a time. Each costs a process of kubectl."""
_BEAT: Final = 0.5
PROGRAM: Final = ("python3", "-m", "deviceplugin")
"""Which every image has, whatever is in its path."""
_JSON: Final = (("--output", "json"), ("--json",))
"""How a command is asked for JSON; by the second in older images."""
_REGISTRATION: Final = "registration"
"""What newer doctors check themselves."""
_WRONG: Final = ValueError, LookupError, TypeError, AttributeError, RecursionError

READ: Final = """\
import os, shutil, ssl, sys
from urllib import error, request
env = os.environ.get
host, _, port = env("DP_HTTP_ADDRESS", "127.0.0.1:9494").rpartition(":")
own, token = env("DP_HTTP_CERT_FILE"), env("DP_HTTP_TOKEN_FILE")
kind = "https" if own else "http"
page = request.Request(f"{kind}://{host or '127.0.0.1'}:{port}{sys.argv[1]}")
if token:
    page.add_unredirected_header("Authorization", "Bearer " + open(token).read().strip())
tls = ssl.create_default_context(cafile=own)
tls.check_hostname = False
tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
opener = request.build_opener(request.ProxyHandler({}), request.HTTPSHandler(context=tls))
try:
    answer = opener.open(page, timeout=10)
except error.HTTPError as refused:
    answer = refused
shutil.copyfileobj(answer, sys.stdout.buffer)
"""
"""Prints a page of the plugin in its own pod, whose certificate and token are known there. It needs
nothing but Python, so that it works in images of any version."""

_T = TypeVar("_T")


@dataclass(slots=True)
class Answer:
    """What one pod said."""

    pod: PluginPod
    located: list[Located] = field(default_factory=list)
    silence: str = ""
    """Why its doctor did not answer; empty if it did."""
    checks: list[str] = field(default_factory=list)
    """Those that its doctor made, in order."""
    fine: int = 0
    """How many findings are ok."""
    resources: frozenset[str] = frozenset()
    """Those that the plugin lists."""
    said: dict[str, str] = field(default_factory=dict)
    """The answers as they are, by name of a file."""


def ask_all(
    cluster: Cluster, act: Callable[[PluginPod], _T], kubectl: Kubectl, progress: Progress
) -> list[_T]:
    """Return what ``act`` says of each pod, several at a time, in the order of the pods."""
    pool = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="pod")
    try:
        running = [pool.submit(act, pod) for pod in cluster.pods]
        left = {*running}
        while left:
            # With a limit, or a Ctrl-C just before the wait would only be noticed after it.
            done, left = wait(left, _BEAT, FIRST_COMPLETED)
            for one in done:
                one.result()
            progress.show("the answers of pods", len(running) - len(left), len(running))
        return [one.result() for one in running]
    except BaseException:  # such as Ctrl-C
        kubectl.stop()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _obstacle(pod: PluginPod, cluster: Cluster) -> str:
    """Return why nothing can be run in the pod; an empty string if it can."""
    node = (cluster.nodes or {}).get(pod.node)
    if node is not None and node.fault:
        return node.fault
    return "" if pod.runs else "its container does not run"


def ask(pod: PluginPod, cluster: Cluster, asked: Asked, kubectl: Kubectl) -> Answer:
    """Run the doctor in a pod, and read its devices. What fails becomes a finding.

    A pod that cannot be asked has a finding already, or its node has.
    """
    answer = Answer(pod, silence=_obstacle(pod, cluster))
    if answer.silence:
        return answer
    ran = _doctor(pod, asked, kubectl)
    answer.said["doctor.json"] = ran.out
    try:
        answer.located += _findings(pod, json.loads(ran.out), answer)
    except _WRONG:
        refusal = _refusal(pod, ran)
        answer.silence = refusal.found
        answer.located = [_of(pod, "asking", refusal)]
        return answer
    page = in_pod(pod, kubectl, "python3", "-c", READ, "/devices")
    answer.said["devices.json"] = page.out
    try:
        answer.located += _of_devices(pod, json.loads(page.out), asked, answer)
    except _WRONG:
        found = unknown(f"{pod}: /devices", page.error or "is not a list of devices")
        answer.located.append(_of(pod, "devices", found))
    return answer


def in_pod(pod: PluginPod, kubectl: Kubectl, *words: str) -> Ran:
    """Run a command in the plugin's container."""
    where = ("--namespace", pod.namespace, "exec", pod.name, "--container", pod.container)
    return kubectl.run(*where, "--", *words)


def command(pod: PluginPod, kubectl: Kubectl, *words: str) -> Ran:
    """Run a command of ``deviceplugin`` in the pod for JSON, whichever way its version has it."""
    newer, older = _JSON
    ran = in_pod(pod, kubectl, *PROGRAM, *words, *newer)
    return in_pod(pod, kubectl, *PROGRAM, *words, *older) if ran.status == USAGE else ran


def _doctor(pod: PluginPod, asked: Asked, kubectl: Kubectl) -> Ran:
    """Run the doctor; it is to expect devices if somebody names the node and the resource."""
    if asked.node and asked.resource and pod.plugin:
        ran = command(pod, kubectl, "doctor", "--plugin", pod.plugin)
        if ran.status != USAGE:
            return ran
    return command(pod, kubectl, "doctor")


def _of(pod: PluginPod, check: str, finding: Finding) -> Located:
    return Located(check, finding, pod.node, str(pod))


def _findings(pod: PluginPod, document: Mapping[str, Any], answer: Answer) -> Iterator[Located]:
    for one in document["findings"]:
        words = (str(one[key]) for key in ("looked_at", "found", "means", "do"))
        found = Finding(Verdict(one["verdict"]), *(said(text) for text in words))
        answer.checks.append(printable(said(str(one["check"]))))
        if found.verdict is Verdict.OK:
            answer.fine += 1
        else:
            yield _of(pod, answer.checks[-1], found)


def _of_devices(
    pod: PluginPod, page: Mapping[str, Any], asked: Asked, answer: Answer
) -> Iterator[Located]:
    resources = [(str(one["name"]), one) for one in page["resources"]]
    answer.resources = frozenset(name for name, _ in resources)
    for name, one in resources:
        if not asked.wants(name):
            continue
        if one["problem"] and _REGISTRATION not in answer.checks:
            means = "the kubelet has no devices of this resource to allocate."
            do = "common/docs/runbooks.md#devicepluginnotregistered has each of these reasons."
            found = failure(name, said(str(one["problem"])), means=means, do=do)
            yield _of(pod, _REGISTRATION, found)
        yield from _of_resource(pod, name, [*filterfalse(is_spare, one["devices"])])


def _of_resource(pod: PluginPod, name: str, devices: Sequence[Any]) -> Iterator[Located]:
    bad = [one for one in devices if not one["healthy"]]
    kind = failure if len(bad) == len(devices) else warning
    for one in bad:
        found = f"{one['reason'] or 'unhealthy, without a reason'} (since {one['since']})"
        means = "the kubelet gives it to no new pod; a pod that has it keeps it."
        do = "check the pods that hold it; common/docs/runbooks.md#deviceunhealthy goes on."
        finding = kind(f"{name} {one['id']}", said(found), means=means, do=do)
        yield _of(pod, "devices", finding)


_ON_NODE: Final = "run the doctor on the node: common/docs/doctor.md."
_REFUSALS: Final[Sequence[tuple[str, str, str]]] = (
    (
        "orbidden",
        "commands may not be run in its pod",
        "allow get and create pods/exec in namespace {pod.namespace}: common/docs/fleet.md#rights.",
    ),
    (
        "executable file not found",
        "its image has no Python",
        "it is no plugin of this framework: leave it out by --selector, or read its log.",
    ),
    (
        "No module named",
        "its image has no doctor",
        "it is no plugin of this framework, or an older one: take a newer image.",
    ),
    ("unknown command", "its image is older than the doctor", "take a newer image."),
)
"""What kubectl prints, what that says of a pod, and what to do."""


def _refusal(pod: PluginPod, ran: Ran) -> Finding:
    """Return why the doctor did not answer."""
    for sign, found, do in _REFUSALS:
        if sign in ran.error:
            return unknown(str(pod), f"{found}: {ran.error}", do.format(pod=pod))
    found = ran.error or f"the doctor ends with status {ran.status}, and without an answer"
    return unknown(str(pod), found, _ON_NODE)
