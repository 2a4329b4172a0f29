"""What a cluster keeps between cases: plugins, and hardware that it pretends to have."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from homes.case import cases
from homes.cluster_manifests import Options
from homes.cluster_node import ClusterNode
from homes.deployed import Deployed, pack
from homes.home import Plugin
from homes.kubectl import Kubectl
from homes.pretended_hardware import NODE, StandIn
from homes.progress import Progress


def why_not_pretend() -> str:
    """Return why no hardware can be made here for another machine; empty if it can."""
    if os.geteuid() != 0:
        return "--pretend-hardware makes device nodes: run it as root"
    return "" if NODE.exists() else f"--pretend-hardware needs {NODE}: modprobe fuse"


class Session:
    """Each plugin has one namespace, and stays until it is removed or the session is closed.

    ``cache`` is where what is compiled for pretended hardware is kept.
    """

    def __init__(self, root: Path, options: Options, progress: Progress, cache: Path) -> None:
        self.options, self.progress = options, progress
        self.node = ClusterNode(Kubectl("default", options.patience + 60), options.node)
        self._root, self._cache = root, cache
        self._deployed: dict[str, Deployed] = {}
        self._stand_ins: dict[str, StandIn] = {}
        self._own: dict[str, str] = {}
        """The plugin that has a resource, or had it."""
        self._missing: dict[str, str] = {}

    def place(self, plugin: Plugin) -> Deployed:
        """Return where the plugin is, or will be.

        Skips the test where the node has its resource from another, or has no hardware for it.
        """
        if plugin.resource in self._missing:
            pytest.skip(self._missing[plugin.resource])
        # The capacity of a plugin that is gone stays for five minutes.
        if plugin.resource not in self._own and self.node.matching(plugin.resource):
            pytest.skip(f"{self.node.name} has {plugin.resource} already: another plugin is there")
        self._own[plugin.resource] = plugin.name
        if plugin.name not in self._deployed:
            root = self._root / plugin.name
            root.mkdir(exist_ok=True)
            made = Deployed(root, self.node, self.options, self.progress)
            self._deployed[plugin.name] = made
        return self._deployed[plugin.name]

    def install(self, plugin: Plugin) -> None:
        """Have the plugin run in its place."""
        deployed = self._deployed[plugin.name]
        deployed.apply(plugin, self._hardware(plugin, deployed))

    def _hardware(self, plugin: Plugin, deployed: Deployed) -> StandIn | None:
        make = cases()[plugin.name].hardware
        if not self.options.pretend_hardware or make is None:
            return None
        if plugin.name not in self._stand_ins:
            # It is made where it will be on the node, which its files name.
            folder = deployed.folder / "hardware"
            folder.mkdir(parents=True)
            try:
                made = make(folder, self._cache)
                for place in made.host.values():
                    place.mkdir(parents=True, exist_ok=True)
                packed = pack(folder)
            finally:
                shutil.rmtree(deployed.folder, ignore_errors=True)
            deployed.unpack(packed)
            self._stand_ins[plugin.name] = made
        return self._stand_ins[plugin.name]

    def miss(self, plugin: Plugin) -> None:
        """Skip this test and all others that need what the node does not have."""
        reason = f"{self.node.name} has no hardware for {plugin.resource}"
        self._missing[plugin.resource] = reason
        pytest.skip(reason)

    def remove(self, name: str) -> None:
        """Remove a plugin, and wait until the node has nothing of it."""
        found = self._deployed.pop(name, None)
        if found is not None:
            self._remove({name: found})

    def close(self) -> None:
        """Remove all of them."""
        found, self._deployed = self._deployed, {}
        self._remove(found)

    def _remove(self, deployed: Mapping[str, Deployed]) -> None:
        failures: list[Exception] = []
        for step in (Deployed.begin_removal, Deployed.end_removal):
            for name, one in deployed.items():
                self._stand_ins.pop(name, None)
                try:
                    step(one)
                except (AssertionError, OSError, subprocess.SubprocessError) as error:
                    failures.append(error)
        if failures:
            raise ExceptionGroup("not all was removed", failures)
        for resource, plugin in self._own.items():
            if plugin in deployed:
                self._wait_gone(resource)

    def _wait_gone(self, resource: str) -> None:
        self.progress.wait(
            lambda: not self.node.matching(resource),
            f"{resource} to be gone from {self.node.name}",
            self.options.patience,
        )
