"""The pod's half of an entry: what it asks for, and which groups it needs if it is not root."""

from collections.abc import Iterable
from textwrap import wrap
from typing import Final

from deviceplugin.checks import GIVES_DEVICES
from deviceplugin_generic.discovery.access import Access, listed

WIDTH: Final = 100
_POD: Final = """\
apiVersion: v1
kind: Pod
metadata:
  name: example
spec:
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    runAsGroup: 1000
{groups}    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - name: main
      image: busybox:1.37
      command: [sleep, infinity]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {{drop: [ALL]}}
      resources:
        limits:
{limits}"""


def half(resource: str, found: Access) -> Iterable[str]:
    """Yield the sentences for the comment of an entry."""
    asks = f"A pod asks for {resource}: 1"
    if not (found.groups or found.closed or found.unseen):
        yield f"{asks}, and may be any user."
        return
    needs = f" needs supplementalGroups: {[*found.groups]}" if found.groups else ""
    yield f"{asks}.{f' One that is not root{needs}.' if needs else ''}"
    yield from _limits_of(found)


def pod(resources: Iterable[str], found: Access) -> str:
    """Return the manifest of a pod that is not root and has one device of each resource.

    ``found`` is who may open the nodes of all of them.
    """
    comments = [
        "A pod that is not root, with these devices. Add what else the program needs.",
        *_limits_of(found),
        *(["Groups of the node do not count with hostUsers: false."] if found.groups else ()),
    ]
    reasons = [f"{number} for {listed(paths)}" for number, paths in found.groups.items()]
    groups = "".join(f"    # {line}\n" for one in reasons for line in lines(one))
    groups += f"    supplementalGroups: {[*found.groups]}\n" if found.groups else ""
    limits = "".join(f"          {resource}: 1\n" for resource in resources)
    heading = "".join(f"# {line}\n" for one in comments for line in lines(one))
    return heading + _POD.format(groups=groups, limits=limits)


def _limits_of(found: Access) -> Iterable[str]:
    """Yield what no group changes, and what cannot be known here."""
    if found.closed:
        nodes = listed([f"{path} ({mode})" for path, mode in found.closed.items()])
        yield (
            f"Warning: only the owner can open {nodes}, whatever groups a pod has. A udev rule "
            f"with GROUP and MODE changes that, or {GIVES_DEVICES} of the container runtime: "
            "deviceplugin doctor says what it is."
        )
    if found.unseen:
        nodes = listed(found.unseen, " ")
        yield f"Which groups it needs is not visible here: on the node, ls -ln {nodes} says it."


def lines(text: str) -> list[str]:
    """Return the lines of a comment. Devices say of themselves what they like."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in text)
    return wrap(printable, WIDTH - 4, break_long_words=False, break_on_hyphens=False)
