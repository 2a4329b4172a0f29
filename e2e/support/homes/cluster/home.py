"""A real cluster, through kubectl. Every name is new for a run, and everything is removed."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from homes.cluster.deployed import PLUGIN, Deployed
from homes.cluster.kubectl import Kubectl, undisturbed
from homes.cluster.manifests import Pods
from homes.cluster.session import Session
from homes.cluster.workload import Workload, devices
from homes.home import LOOK, Given, NotStartedError, Plugin, seen

END = "that is all"
"""The last line of a pod's log, which is read while it is written."""


class Cluster:
    """See Home. A home is for one case. The session keeps what it installs for the next one."""

    def __init__(self, session: Session) -> None:
        self._session, self._node = session, session.node
        self._options, self._patience = session.options, session.options.patience
        self._case = token_hex(3)
        self._plugin: Plugin | None = None
        self._deployed: Deployed | None = None
        self._has_failed = False
        self._workloads: list[Workload] = []

    @property
    def _here(self) -> Deployed:
        assert self._deployed is not None, "nothing is installed"
        return self._deployed

    @property
    def pods(self) -> Pods:
        """How pods of this case are made."""
        return Pods(self._options, self._here.namespace, self._node.hostname, self._case)

    def _kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        return self._here.kubectl.own(*words, stdin=stdin, check=check)

    # Installing

    def install(self, plugin: Plugin, *, before: bool = False) -> None:
        """See Home. ``before`` is the release before."""
        self._plugin = plugin
        self._deployed = self._session.place(plugin)
        self._session.install(plugin, before=before)

    def offer(self, plugin: Plugin) -> tuple[str, int]:
        if plugin.devices is not None:
            self.wait_allocatable(plugin.resource, plugin.devices)
            return plugin.resource, plugin.devices
        if not self._has_devices(plugin):
            self._session.miss(plugin)
        found: dict[str, int] = {}

        def has_some() -> bool:
            found.update(self._node.matching(plugin.resource))
            return bool(found)

        self._here.wait(has_some, f"{self._node.name} to have {plugin.resource}")
        return max(found.items())

    def _has_devices(self, plugin: Plugin) -> bool:
        """Return whether the plugin, which is ready, has found devices."""
        return any(devices(self._here, plugin.resource))

    def wait_allocatable(self, resource: str, count: int) -> None:
        self._here.wait(
            lambda: self._node.allocatable(resource) == count,
            f"{self._node.name} to have {count} of {resource}",
        )

    # What only a cluster has

    def need(self, option: str) -> None:
        """Skip the test where an option is not given."""
        if not getattr(self._options, option):
            pytest.skip(f"no --{option.replace('_', '-')}")

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    @property
    def kubectl(self) -> Kubectl:
        """For what is in no namespace, also before anything is installed."""
        return self._session.kubectl

    def fail(self) -> None:
        """Have nothing stay for the next case, because this one has failed."""
        self._has_failed = True

    @property
    def here(self) -> Deployed:
        """Where the plugin is."""
        return self._here

    def deploy(self, name: str, resource: str, replicas: int) -> Workload:
        """Run pods of a Deployment, with one device each, until the case has ended."""
        made = Workload(self._here, self._looking(self._name(name), resource, 1), replicas)
        self._workloads.append(made)
        return made

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod that was run."""
        found: dict[str, Any] = self._here.kubectl.get_own("pod", self._name(name))
        return found

    def wait_gone(self, name: str) -> None:
        """Wait until a pod that was deleted is gone."""
        words = ("get", "pod", self._name(name), "--ignore-not-found", "--output=name")
        self._here.wait(lambda: not self._kubectl(*words), f"the pod {name} to be gone")

    def logs(self, component: str) -> str:
        """Return what the pod of a component that has one of its own has logged."""
        return self._kubectl("logs", f"--selector={PLUGIN}-{component}", "--tail=-1")

    # Files on the node

    def add_file(self, name: str) -> None:
        files = f"/host/{self._here.namespace}/files"
        self._here.on_node(f"mkdir -p {files} && touch {files}/{name}")

    def remove_file(self, name: str) -> None:
        self._here.on_node(f"rm /host/{self._here.namespace}/files/{name}")

    # Pods

    def _name(self, name: str) -> str:
        """Return a new name for a pod, so that it need not wait for the end of another."""
        return f"{name}-{self._case}"

    def run(self, name: str, resource: str, count: int) -> Given:
        pod = self._looking(self._name(name), resource, count)
        self._here.kubectl.apply(pod)
        self._here.wait_phase(self._name(name), "Running")
        return self.given(self._name(name))

    def _looking(self, name: str, resource: str, count: int) -> dict[str, Any]:
        command = f"{LOOK}; echo; echo {END}; trap exit TERM; sleep 7200 & wait"
        pod = self.pods.running(name, command, {resource: str(count)})
        asks = self._plugin.asks if self._plugin is not None else {}
        env = [{"name": key, "value": value} for key, value in asks.items()]
        pod["spec"]["containers"][0]["env"] = env
        return pod

    def given(self, name: str) -> Given:
        """Return what the container of a pod has seen; ``name`` is the pod's on the cluster."""
        said: list[str] = []

        def has_said_all() -> bool:
            said[:] = [self._kubectl("logs", name)]
            return said[0].endswith(f"\n{END}\n")

        self._here.wait(has_said_all, f"the pod {name} to say what it sees")
        return seen(said[0].removesuffix(f"\n{END}\n"))

    def need_containers(self) -> None:
        """They are."""

    def need_cdi(self) -> None:
        if self._node.why_no_cdi:
            pytest.skip(self._node.why_no_cdi)

    def execute(self, name: str, command: str) -> str:
        return self._here.kubectl.execute(self._name(name), "sh", "-c", command, check=False)

    def run_example(self, pod: Mapping[str, Any]) -> str:
        own = self.pods.example(pod)
        name = own["metadata"]["name"]
        self._here.kubectl.apply(own)
        self._here.wait(lambda: self._has_ended(name), f"the pod {name} to end")
        said = self._kubectl("logs", name)
        self._kubectl("delete", "pod", name)
        return said

    def _has_ended(self, name: str) -> bool:
        """Return whether it succeeded. Raise ``NotStartedError`` if it never ran."""
        status = json.loads(self._kubectl("get", "pod", name, "--output=json"))["status"]
        for one in status.get("containerStatuses", ()):
            for state in one["state"].values():
                if state.get("reason") in {"StartError", "ContainerCannotRun", "RunContainerError"}:
                    raise NotStartedError(state["message"])
        assert status["phase"] != "Failed", status
        return bool(status["phase"] == "Succeeded")

    def is_running(self, name: str) -> bool:
        pod = json.loads(self._kubectl("get", "pod", self._name(name), "--output=json"))
        return bool(pod["status"]["phase"] == "Running")

    def delete(self, name: str) -> None:
        # Nothing waits for this but the scheduler, before it gives the devices to the next pod.
        self._kubectl("delete", "pod", self._name(name), "--wait=false")

    def refusal(self, resource: str, count: int) -> str:
        name = self._name("greedy")
        self._here.kubectl.apply(self.pods.running(name, "true", {resource: str(count)}))
        said: list[str] = []

        def is_told() -> bool:
            pod = json.loads(self._kubectl("get", "pod", name, "--output=json"))
            conditions = pod["status"].get("conditions", ())
            said[:] = [one["message"] for one in conditions if one.get("reason") == "Unschedulable"]
            return bool(said)

        self._here.wait(is_told, "the scheduler to say why a pod does not run")
        self.delete("greedy")
        return said[0]

    # The plugin

    def metrics(self) -> str:
        return self._here.ask("metrics")

    def restart_plugin(self) -> None:
        self._here.restart()

    @property
    def may_restart_kubelet(self) -> bool:
        return bool(self._options.restart_kubelet)

    def restart_kubelet(self) -> None:
        before = self._here.registrations()
        self.run_whole(self._options.restart_kubelet)
        # Until then the node's status is outdated, and the kubelet rejects pods that rely on it.
        self._here.wait(
            lambda: self._here.registrations() > before, "the plugin to be registered again"
        )

    def run_whole(self, command: str, **environment: str) -> None:
        """Run a shell command that stops what the node needs and starts it again."""
        # Ctrl-C comes to it, too. It stays on the terminal, where ssh and sudo ask for passwords.
        words, own = ["sh", "-c", f"trap '' INT; {command}"], {**os.environ, **environment}
        with undisturbed(self._session.progress.say):
            subprocess.run(words, check=True, timeout=self._patience, env=own)

    def reboot(self, meanwhile: str = "") -> None:
        """Reboot the node, which then shows its hardware in another order, and one device more.

        ``meanwhile`` is a command that runs on it while it is down.
        """
        assert self._plugin is not None
        exchange = self._session.bring_rebooted(self._plugin)
        before = self._here.containers()
        self.run_whole(self._options.reboot, MEANWHILE=meanwhile or exchange)
        self._here.wait_rebooted(before)

    def uninstall(self) -> None:
        assert self._plugin is not None
        self._session.remove(self._plugin.name)

    def collect(self, folder: Path) -> None:
        self._has_failed = True
        if self._deployed is None:
            return
        questions = {
            "objects.yaml": ("get", "all,configmaps,networkpolicies", "--output=yaml"),
            "events.txt": ("get", "events", "--sort-by=.lastTimestamp"),
            "pods.txt": ("describe", "pods"),
            "plugin.log": (
                *("logs", f"--selector={PLUGIN}", "--all-containers"),
                *("--tail=-1", "--prefix"),
            ),
            "node.txt": ("describe", "node", self._node.name),
        }
        for name, words in questions.items():
            (folder / name).write_text(self._kubectl(*words, check=False))

    def close(self) -> None:
        if self._plugin is None:
            return
        if self._has_failed:  # The next case must not find it.
            self._session.remove(self._plugin.name)
        elif self._deployed is not None and self._deployed.is_there():
            for workload in self._workloads:
                workload.remove()
            self._deployed.forget_case(self._case)
