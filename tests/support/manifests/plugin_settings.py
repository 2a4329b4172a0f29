"""What a plugin itself makes of the flags and the environment that a manifest gives it."""

import multiprocessing
import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from json import loads
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from deviceplugin._config.loading import CONFIG_VARIABLE
from manifests.expected import Expected
from patience import PATIENCE

Manifest = Mapping[str, Any]
_CONTEXT = multiprocessing.get_context("forkserver")
"""Python starts once for a hundred questions."""
_CONTEXT.set_forkserver_preload(
    [
        *("deviceplugin._app.run", "deviceplugin.tools.agent._cli"),
        *(entry.module for entry in entry_points(group="deviceplugin.plugins")),
    ]
)
Files = tuple[tuple[str, str, str], ...]
"""Each with its folder, its name and what is in it."""


def settings_problems(
    container: Manifest, manifests: Sequence[Manifest], command: str, more: Expected
) -> Iterator[str]:
    """Ask the plugin itself what it makes of the manifest's flags and environment."""
    # What the cluster fills in (valueFrom) is some text here.
    environment = {one["name"]: one.get("value", "some-text") for one in container.get("env", [])}
    program = str(Path(sys.executable).with_name(command))
    words = (program, *container.get("args", []), "--print-config")
    failed, said = _printed(words, tuple(environment.items()), _mounted(container, manifests))
    if failed:
        yield f"{command} says: {said.strip().splitlines()[-1].removeprefix(f'{command}: ')}"
        return
    settings: dict[str, Any] = loads(said)
    known = {"DP_" + key.upper().replace("-", "_") for key in settings} | more.variables
    known.add(CONFIG_VARIABLE)
    yield from (f"{name} is no setting" for name in environment if name not in known)
    yield from _of_paths(container, settings, more.not_mounted, writes_cdi="cdi" in more.included)
    host, _, port = settings["http-address"].rpartition(":")
    ports = {entry["name"]: entry["containerPort"] for entry in container.get("ports", [])}
    if ports.get("http") != int(port) or host.startswith(("127.", "localhost", "[::1]")):
        yield f"http-address {settings['http-address']} cannot be probed on port {ports}"


def driver_directory(container: Manifest) -> str | None:
    """Return the directory for a DRA driver that a container is given; None without one."""
    found = [one["value"] for one in container.get("env", ()) if one["name"] == "DP_DRIVER_DIR"]
    return found[0] if found else None


def _mounted(container: Manifest, manifests: Sequence[Manifest]) -> Files:
    """Return the files of the ConfigMaps that are mounted."""
    data = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
    (pod,) = (one["spec"]["template"]["spec"] for one in manifests if one["kind"] == "DaemonSet")
    sources = {
        one["name"]: one.get("projected", {}).get("sources") or [one] for one in pod["volumes"]
    }
    return tuple(
        (mount["mountPath"], chosen.get(name, name), text)
        for mount in container.get("volumeMounts", ())
        for source in sources.get(mount["name"], ())
        if "configMap" in source
        for chosen in [{x["key"]: x["path"] for x in source["configMap"].get("items", ())}]
        for name, text in data.get(source["configMap"]["name"], {}).items()
    )


@cache
def _printed(
    words: tuple[str, ...], variables: tuple[tuple[str, str], ...], files: Files
) -> tuple[bool, str]:
    """Return whether the plugin failed, and what it printed; most components change none of it."""
    environment = dict(variables)
    with TemporaryDirectory() as folder:
        for place, name, text in files:
            path = Path(f"{folder}{place}", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if f"{environment.get(CONFIG_VARIABLE)}/".startswith(f"{place}/"):
                environment[CONFIG_VARIABLE] = folder + environment[CONFIG_VARIABLE]
        out, error = Path(folder, "out"), Path(folder, "error")
        process = _CONTEXT.Process(target=_run, args=(words, environment, out, error))
        process.start()
        process.join(PATIENCE)
        config = PurePosixPath(environment.get(CONFIG_VARIABLE, ""))
        if process.exitcode == 0:
            return False, out.read_text()
        return True, error.read_text().replace(f"{config.parent}/", "")


def _run(words: Sequence[str], environment: Mapping[str, str], out: Path, error: Path) -> None:
    """Do what the installed command does, in a process that has been forked."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [*words]
    for path, number in ((out, 1), (error, 2)):
        with path.open("w") as file:
            os.dup2(file.fileno(), number)
    (entry,) = entry_points(group="console_scripts", name=Path(words[0]).name)
    sys.exit(entry.load()())


def _of_paths(
    container: Manifest,
    settings: Mapping[str, Any],
    elsewhere: Collection[str],
    *,
    writes_cdi: bool,
) -> Iterator[str]:
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    mounts += ["/sys", "/proc"]  # in every container
    paths = {k: v for k, v in settings.items() if isinstance(v, str) and v.startswith("/")}
    # Only one of the two ways to register is used.
    del paths["plugin-dir" if settings["registration"] == "watcher" else "registry-dir"]
    # Every plugin has the settings of DRA, which only the component dra makes use of.
    has_driver = driver_directory(container) is not None
    if not has_driver:
        del paths["driver-dir"]
    if not (writes_cdi or has_driver):
        del paths["cdi-dir"]
    for key, value in paths.items():
        if key in elsewhere:
            continue
        path = PurePosixPath(value)
        if not any(path.is_relative_to(mount) for mount in mounts):
            yield f"{key}: {value} is not mounted"
