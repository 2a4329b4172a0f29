"""Pods that come and go on the node of the chaos, and lock their devices as long as they live."""

import json
import random
from collections.abc import Mapping
from typing import Any, Final

from homes.chaos.scripts import LOCK
from homes.chaos.seen import GOPHERS, OTHERS
from homes.cluster.home import Cluster

MOST: Final = 10
"""Pods at once."""
_STAY: Final = 7200.0


class Load:
    """Pods of the case of ``gopher``, with devices of both plugins."""

    def __init__(self, gopher: Cluster, chance: random.Random) -> None:
        self._gopher, self._here, self._random = gopher, gopher.here, chance
        self._image = gopher.here.image()
        self._pods: list[str] = []
        self.number = 0
        """Pods until now."""
        self.is_refused = False
        """Whether the API server may refuse a pod now."""

    def _container(self, name: str, limits: Mapping[str, str], seconds: float) -> dict[str, Any]:
        (container,) = self._gopher.pods.running(name, "", limits)["spec"]["containers"]
        return {
            **container,
            "name": name,
            # It has Python, which has locks.
            "image": self._image,
            "command": ["python3", "-c", LOCK, f"{seconds:g}", name],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "locks", "mountPath": "/locks"}],
        }

    def pod(self, limits: Mapping[str, str], seconds: float = _STAY) -> dict[str, Any]:
        self.number += 1
        pod = self._gopher.pods.running(f"chaos-{self.number}", "", limits)
        place = {"path": f"{self._here.folder}/locks", "type": "DirectoryOrCreate"}
        # With 0 the API server forgets the pod at once, and the kubelet gives its devices to the
        # next one while its containers still end.
        pod["spec"]["terminationGracePeriodSeconds"] = 2
        pod["spec"]["containers"] = [self._container("main", limits, seconds)]
        pod["spec"]["volumes"] = [{"name": "locks", "hostPath": place}]
        return pod

    def _run(self, pod: dict[str, Any]) -> None:
        if len(self._pods) >= MOST:
            self.delete()
        words = ("apply", "--filename=-")
        self._here.kubectl(*words, stdin=json.dumps(pod), check=not self.is_refused)
        self._pods.append(pod["metadata"]["name"])

    def plain(self) -> None:
        self._run(self.pod({GOPHERS: str(self._random.randint(1, 2))}))

    def claiming(self, *templates: str) -> None:
        """Run a pod with a claim of each of these ResourceClaimTemplates."""
        pod = self.pod({})
        claims = {f"claim-{number}": one for number, one in enumerate(templates)}
        pod["spec"]["resourceClaims"] = [
            {"name": name, "resourceClaimTemplateName": one} for name, one in claims.items()
        ]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": name} for name in claims]}
        self._run(pod)

    def several(self) -> None:
        self._run(self.pod(dict.fromkeys((GOPHERS, OTHERS), "1")))

    def restarting(self) -> None:
        pod = self.pod({GOPHERS: "1"}, 3)
        pod["spec"]["restartPolicy"] = "Always"
        self._run(pod)

    def init(self) -> None:
        pod = self.pod({GOPHERS: "1"})
        first = self._container("first", {GOPHERS: "1"}, 1)
        pod["spec"]["initContainers"] = [first]
        self._run(pod)

    def sidecar(self) -> None:
        pod = self.pod({GOPHERS: "1"})
        beside = self._container("beside", {GOPHERS: "1"}, _STAY)
        pod["spec"]["initContainers"] = [{**beside, "restartPolicy": "Always"}]
        self._run(pod)

    def delete(self) -> None:
        if self._pods:
            name = self._pods.pop(self._random.randrange(len(self._pods)))
            words = ("delete", "pod", name, "--wait=false", "--ignore-not-found")
            self._here.kubectl.own(*words, check=not self.is_refused)

    def forget(self) -> None:
        """All pods are gone, whoever has deleted them."""
        self._pods.clear()
