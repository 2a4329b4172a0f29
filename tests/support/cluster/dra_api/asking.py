"""Requests to an API server, and its answers without what is never the same."""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

Object = dict[str, Any]
ANSWERS: Final = Path(__file__).with_name("answers.json")
ENDINGS: Final = Path(__file__).with_name("endings.json")
"""How scenes end with the real scheduler and controllers, as the simulated ones end them too."""
GROUP: Final = "/apis/resource.k8s.io/v1"
SLICES: Final = f"{GROUP}/resourceslices"
CLASSES: Final = f"{GROUP}/deviceclasses"
CLAIMS: Final = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES: Final = f"{GROUP}/namespaces/default/resourceclaimtemplates"
PODS: Final = "/api/v1/namespaces/default/pods"
MERGE: Final = "application/merge-patch+json"
_SHOWN: Final = 4
_SECRET: Final = ("managedFields", "resourceVersion", "continue")


class Step(NamedTuple):
    """A request. ``body`` may be a function of the answer before."""

    method: str
    path: str
    body: Any = None
    media: str = "application/json"
    is_compared: bool = True
    """Whether the body of the answer is, and not only its status."""


Case = Sequence[Step]


class Asker:
    """Sends requests to a server, and reads its answers without what is never the same."""

    def __init__(self, url: str, token: str = "", authority: Path | None = None) -> None:
        self._url, self._token = url, token
        self._context = ssl.create_default_context(cafile=authority) if authority else None

    def answers(self, case: Case) -> list[list[Any]]:
        """Return status and body of the answer to each step, and delete what the case created."""
        found: list[list[Any]] = []
        created: list[str] = []
        last: Object = {}
        for step in case:
            body = step.body(last) if callable(step.body) else step.body
            code, last = self.ask(step._replace(body=body))
            if (
                code == 201
                and "?dryRun" not in step.path
                and (name := last["metadata"].get("name"))
            ):
                created.append(f"{step.path}/{name}")
            found.append([code, normal(last)] if step.is_compared else [code])
        for path in created:
            self.remove(path)
        return found

    def remove(self, path: str) -> None:
        """Delete an object, without its finalizers."""
        self.ask(Step("PATCH", path, {"metadata": {"finalizers": None}}, MERGE))
        self.ask(Step("DELETE", path, {"gracePeriodSeconds": 0}))

    def read(self, path: str, media: str) -> bytes:
        """Return an object as the server has it in another format than JSON."""
        headers = {"Accept": media, "Authorization": f"Bearer {self._token}"}
        wanted = urllib.request.Request(self._url + path, headers=headers)
        with urllib.request.urlopen(wanted, context=self._context, timeout=30) as answer:
            assert media == answer.headers["Content-Type"]
            found: bytes = answer.read()
            return found

    def ask(self, step: Step) -> tuple[int, Object]:
        """Return status and body of the answer."""
        raw = isinstance(step.body, bytes)
        data = step.body if raw or step.body is None else json.dumps(step.body).encode()
        headers = {"Content-Type": step.media, "Authorization": f"Bearer {self._token}"}
        asked = urllib.request.Request(self._url + step.path, data, headers, method=step.method)
        try:
            with urllib.request.urlopen(asked, context=self._context, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


def normal(found: Any) -> Any:
    """Return an answer without what is never the same."""
    if isinstance(found, list):
        few = [normal(one) for one in found[:_SHOWN]]
        return few if len(found) <= _SHOWN else [*few, f"and {len(found) - _SHOWN} more"]
    if isinstance(found, dict):
        kept = {key: normal(value) for key, value in found.items() if key not in _SECRET}
        if "generateName" in kept:
            kept["name"] = "RANDOM"
        return kept
    if not isinstance(found, str):
        return found
    found = re.sub(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", found)
    found = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", found)
    found = re.sub(r'"[\w./-]+/(pkg/api/legacyscheme/)', r'"\1', found)  # where it was built
    return re.sub(r"in record \(\d+\)", "in record (VERSION)", found)


def edited(edit: Callable[[Object], Any]) -> Callable[[Object], Object]:
    """Return the answer before, as ``edit`` changes it."""

    def body(last: Object) -> Object:
        made: Object = json.loads(json.dumps(last))
        edit(made)
        return made

    return body
