"""An API server that takes Events as the real one does, and fails as it is told."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import kubernetes_validate

from cluster.scripted_api import Answer, Asked, Script, running

__all__ = ["Answer", "Api", "running"]

PATH = "/api/v1/namespaces/default/events"


@dataclass
class Api(Script):
    """What the server was asked, and what it is to answer."""

    failures: deque[Answer] = field(default_factory=deque)
    """Answers to the next requests."""
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What was created, by name."""

    def __post_init__(self) -> None:
        self.answers = self.failures
        self.otherwise = self._create

    @property
    def headers(self) -> list[Mapping[str, str]]:
        return [asked.headers for asked in self.asked]

    def messages(self) -> list[str]:
        return [event["message"] for event in self.events.values()]

    def _create(self, asked: Asked) -> Answer:
        if ("POST", PATH) != (asked.method, asked.path):
            return Answer(404, "the server could not find the requested resource")
        event = asked.body
        if problem := invalid(event):
            return Answer(422, problem)
        name = event["metadata"]["name"]
        if name in self.events:
            return Answer(409, f'events "{name}" already exists')
        self.events[name] = event
        return Answer(201)


def invalid(event: Mapping[str, Any]) -> str:
    """Return what a real API server would have against ``event``."""
    for version in ("1.26", "1.37"):
        try:
            kubernetes_validate.validate(event, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return str(error.message)
    if event["metadata"]["namespace"] != event["involvedObject"].get("namespace", "default"):
        return "involvedObject.namespace: does not match event.namespace"
    if len(event["message"].encode()) > 1024:
        return "message: can have at most 1024 bytes"
    if len(event["metadata"]["name"]) > 253:
        return "metadata.name: must be no more than 253 characters"
    return ""
