"""What a cluster keeps between cases: plugins, and pretended hardware."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from homes.case import cases
from homes.cluster.deployed import Deployed
from homes.cluster.kubectl import Kubectl, undisturbed
from homes.cluster.manifests import Options
from homes.cluster.node import ClusterNode
from homes.cluster.progress import Progress
from homes.home import Plugin
from homes.pretended_hardware import NODE, StandIn, pack

HARDWARE = "hardware"
"""The folder on the node, in that of the plugin, with what it pretends to have."""


@dataclass(frozen=True)
class Packed:
    """Pretended hardware, and the archive that brings it to a node."""

    stand_in: StandIn
    packed: str


def why_not_pretend() -> str:
    """Return why hardware cannot be created here for another machine; empty if it can."""
    if os.geteuid() != 0:
        return "--pretend-hardware creates device nodes: run it as root"
    return "" if NODE.exists() else f"--pretend-hardware needs {NODE}: modprobe fuse"


class Session:
    """Each plugin has one namespace, and stays until it is removed or the session is closed.

    ``cache`` is the folder for what is compiled for pretended hardware.
    """

    def __init__(self, root: Path, options: Options, progress: Progress, cache: Path) -> None:
        self.progress = progress
        self.kubectl = Kubectl("default", options.patience + 60)
        self.node = ClusterNode(self.kubectl, options.node)
        self.options = replace(options, pod_image=self.node.listed(options.pod_image))
        self._root, self._cache = root, cache
        self._deployed: dict[str, Deployed] = {}
        self._stand_ins: dict[str, Packed] = {}
        self._rebooted: dict[str, Packed] = {}
        self._own: dict[str, str] = {}
        """The plugin that has a resource, or had it."""
        self._missing: dict[str, str] = {}

    def place(self, plugin: Plugin) -> Deployed:
        """Return where the plugin is, or will be.

        Skip the test if another plugin serves its resource, or if there is no hardware for it.
        """
        if plugin.resource in self._missing:
            pytest.skip(self._missing[plugin.resource])
        # The capacity of a plugin that is gone stays for five minutes.
        if plugin.resource not in self._own and self.node.matching(plugin.resource):
            left = self.kubectl("get", "namespaces", "--output=name").split()
            ours = [one.rpartition("/")[2] for one in left if "/e2e-" in one] or ["none"]
            reason = f"{self.node.name} has {plugin.resource} already: another plugin is there"
            pytest.skip(f"{reason}; namespaces that an earlier run has left: {', '.join(ours)}")
        self._own[plugin.resource] = plugin.name
        if plugin.name not in self._deployed:
            root = self._root / plugin.name
            root.mkdir(exist_ok=True)
            made = Deployed(root, self.node, self.options, self.progress)
            self._deployed[plugin.name] = made
        return self._deployed[plugin.name]

    def install(self, plugin: Plugin, *, before: bool = False) -> None:
        """Have the plugin run in its place; ``before`` is the release before."""
        deployed = self._deployed[plugin.name]
        deployed.apply(plugin, self._hardware(plugin, deployed), before=before)

    def _hardware(self, plugin: Plugin, deployed: Deployed) -> StandIn | None:
        make = cases()[plugin.name].hardware
        if not self.options.pretend_hardware or make is None:
            return None
        if plugin.name not in self._stand_ins:
            folder = deployed.folder / HARDWARE
            made = self._stand_ins[plugin.name] = self.pack(make, folder)
            rebooted = cases()[plugin.name].rebooted
            if self.options.reboot and rebooted is not None:
                self._rebooted[plugin.name] = self.pack(rebooted, folder)
            deployed.unpack(made.packed)
        return self._stand_ins[plugin.name].stand_in

    def pack(self, make: Callable[[Path, Path], StandIn], folder: Path) -> Packed:
        """Make hardware where it will be on the node, which its files name, and take it away."""
        folder.mkdir(parents=True)
        try:
            made = make(folder, self._cache)
            for place in made.host.values():
                place.mkdir(parents=True, exist_ok=True)
            return Packed(made, pack(folder))
        finally:
            shutil.rmtree(folder.parent, ignore_errors=True)

    def bring_rebooted(self, plugin: Plugin) -> str:
        """Bring what the node shows after a reboot there; return the command that exchanges it."""
        packed = self._rebooted.get(plugin.name)
        if packed is None:
            return ""
        deployed = self._deployed[plugin.name]
        here, other = deployed.folder / HARDWARE, deployed.folder / "rebooted"
        deployed.unpack(packed.packed, other.name)
        return f"rm -rf {here} && mv {other / here.relative_to('/tmp')} {here}"

    def miss(self, plugin: Plugin) -> None:
        """Skip this test and all others that need hardware that the node does not have."""
        reason = f"{self.node.name} has no hardware for {plugin.resource}"
        self._missing[plugin.resource] = reason
        pytest.skip(reason)

    def remove(self, name: str) -> None:
        """Remove a plugin, and wait until the node has nothing of it."""
        found = self._deployed.pop(name, None)
        if found is not None:
            self._remove({name: found})

    def keep(self, names: Collection[str]) -> None:
        """Remove all plugins but these: one can offer a resource that another has, too."""
        for name in {*self._deployed} - {*names}:
            self.remove(name)

    def close(self) -> None:
        """Remove all of them."""
        found, self._deployed = self._deployed, {}
        self._remove(found)

    def _remove(self, deployed: Mapping[str, Deployed]) -> None:
        with undisturbed(self.progress.say):
            self._note_offered(deployed)
            self._remove_undisturbed(deployed)

    def _note_offered(self, deployed: Mapping[str, Deployed]) -> None:
        """Note whose all resources are, also those that no case names: they go a little later."""
        for name, one in deployed.items():
            try:
                said = json.loads(one.ask("devices", check=False) or "{}")
            except (AssertionError, ValueError, subprocess.SubprocessError):  # it does not run
                continue
            self._own |= {resource["name"]: name for resource in said.get("resources", ())}

    def _remove_undisturbed(self, deployed: Mapping[str, Deployed]) -> None:
        failures: list[Exception] = []
        for step in (Deployed.begin_removal, Deployed.end_removal):
            for name, one in deployed.items():
                self._stand_ins.pop(name, None)
                self._rebooted.pop(name, None)
                try:
                    step(one)
                except (AssertionError, OSError, subprocess.SubprocessError) as error:
                    failures.append(error)
        if failures:
            raise ExceptionGroup("not everything was removed", failures)
        for resource, plugin in self._own.items():
            if plugin in deployed:
                self._wait_gone(resource)

    def _wait_gone(self, resource: str) -> None:
        self.progress.wait(
            lambda: not self.node.matching(resource),
            f"{resource} to be gone from {self.node.name}",
            self.options.patience,
        )
