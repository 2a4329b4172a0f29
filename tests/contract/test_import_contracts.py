"""Import contracts break where code breaks them: a forbidden import for each, in a copy."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import import_contracts

ROOT = Path(__file__).parents[2]
FORBIDDEN = {
    "The core is layered": ("deviceplugin._discovery.found", "deviceplugin._kubelet.server"),
    "DRA is layered": ("deviceplugin._dra.claims.devices", "deviceplugin._dra.slices.pools"),
    "The simulated kubelet is layered": (
        "deviceplugin_testing.simulator._device_manager.manager",
        "deviceplugin_testing.simulator._dra.manager",
    ),
    "The simulated control plane is layered": (
        "deviceplugin_testing.simulator._control_plane.rules.claims",
        "deviceplugin_testing.simulator._control_plane.api_server.request",
    ),
    "The GPU plugin is layered": (
        "deviceplugin_gpu.container.allocation",
        "deviceplugin_gpu.discovery.driver",
    ),
    "gRPC stays in the two sides of the wire": ("deviceplugin._discovery.loop", "grpc"),
    "Prometheus stays in the telemetry": (
        "deviceplugin._attribution.releases",
        "prometheus_client",
    ),
    "inotify stays in the file watcher": ("deviceplugin._kubelet.sockets", "inotify_simple"),
    "tenacity stays in the back-off": ("deviceplugin._registration.by_kubelet_socket", "tenacity"),
    "urllib3 stays in the client of the API server": (
        "deviceplugin.tools.events._watch",
        "urllib3",
    ),
    "YAML stays where files are read": ("deviceplugin._app.text_table", "yaml"),
    "The GPU plugin leaves YAML to the framework": ("deviceplugin_gpu.plugin", "yaml"),
    "The generic plugin is layered": (
        "deviceplugin_generic.configuration.entries",
        "deviceplugin_generic.discovery.tree",
    ),
    "NVML is called in one file": ("deviceplugin_gpu.health.gpu_health", "pynvml"),
    "udev is asked in one file": ("deviceplugin_fpga.plugin", "pyudev"),
    "Plugins use public names only": (
        "deviceplugin_generic.plugin",
        "deviceplugin._platform.hooks",
    ),
    "The operator uses public names of the framework": (
        "deviceplugin_operator.crd.definition",
        "deviceplugin._config.kinds.kind",
    ),
    "The operator is layered": (
        "deviceplugin_operator.rollout.step",
        "deviceplugin_operator.cluster.progress_note",
    ),
    "kopf stays in the operator's shell": ("deviceplugin_operator.controller", "kopf"),
    "Plugins know nothing of the operator": (
        "deviceplugin_gopher.__main__",
        "deviceplugin_operator",
    ),
    "What a node runs knows nothing of the other packages": (
        "deviceplugin.tools.doctor._check",
        "deviceplugin_testing.simulator",
    ),
    "Authors and administrators need not install each other's package": (
        "deviceplugin_cli.fleet._facts",
        "deviceplugin_testing.simulator",
    ),
    "The package for authors is layered": (
        "deviceplugin_testing.simulator._clock",
        "deviceplugin_testing.conformance",
    ),
    "Plugins never import each other": ("deviceplugin_gopher", "deviceplugin_fpga"),
}
"""For each contract a module, and what the contract forbids it to import."""


def sources() -> list[Path]:
    folders = ("common/*/src/*", "operator/src/*", "plugins/*/src/*")
    return [path for folder in folders for path in ROOT.glob(folder)]


def verdicts(folder: Path) -> dict[str, str]:
    """Return KEPT or BROKEN for each contract, judged on the packages in ``folder``."""
    answer = subprocess.run(
        [sys.executable, import_contracts.__file__, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return dict(re.findall(r"^(.+?) (KEPT|BROKEN)\b", answer.stdout, re.MULTILINE))


@pytest.mark.slow
def test_each_contract_breaks_at_a_forbidden_import(tmp_path: Path) -> None:
    for source in sources():
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, tmp_path / source.name, ignore=leave)
    for name, other in FORBIDDEN.values():
        path = tmp_path / name.replace(".", "/")
        with (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).open("a") as file:
            file.write(f"\ndef late():\n    import {other}\n")
    # That they hold without these lines is what `make check` finds.
    assert dict.fromkeys(FORBIDDEN, "BROKEN") == verdicts(tmp_path)


def test_every_plugin_is_under_the_contracts() -> None:
    told = import_contracts.configuration()["importlinter"]["root_packages"].split()
    assert {source.name for source in sources()} == set(told)


def test_a_contract_of_all_plugins_names_each_and_no_wildcard() -> None:
    names = import_contracts.packages()
    found = {one["name"]: one for one in import_contracts.contracts()}
    assert names == found["Plugins never import each other"]["modules"]
    assert names == found["Plugins use public names only"]["source_modules"]


def test_no_two_contracts_have_one_name() -> None:
    names = [contract["name"] for contract in import_contracts.contracts()]
    assert len(names) == len(set(names))


def test_no_module_of_a_plugin_has_an_underscore() -> None:
    names = {path.name for path in ROOT.glob("plugins/*/src/**/_*.py")}
    assert {"__init__.py", "__main__.py"} == names
