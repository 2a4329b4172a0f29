"""A container of the stand-in for a cluster: a process of this machine, with what it gets of a pod.

It is not contained. What it would see at other places than there are here (mounts, /dev, ports) is
put into its words and variables, and taken out again of what it says.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from cluster.kinds import Object
from deviceplugin_testing.simulator import RunOptions

BIN = Path(sys.executable).parent
_KNOWN = {
    "DP_PLUGIN_DIR": "/var/lib/kubelet/device-plugins",
    "DP_REGISTRY_DIR": "/var/lib/kubelet/plugins_registry",
    "DP_POD_RESOURCES_SOCKET": "/var/lib/kubelet/pod-resources/kubelet.sock",
    "DP_CDI_DIR": "/var/run/cdi",
    "DP_CONFIG": "/etc/{}/config.yaml",
}
"""Where a plugin looks without being told, and how it is told another place."""
Image = Sequence[str]
"""The words that an image starts with: none, if a pod has to say what is run."""


@dataclass
class View:
    """What a pod's containers see, and where that is here."""

    root: Path
    """Stands for all that is not mounted."""
    node: Path
    """Stands for the node's root, which is in what plugins say of paths on it."""
    mounts: dict[str, Path] = field(default_factory=dict)
    ports: dict[int, int] = field(default_factory=dict)

    def path(self, inside: str) -> Path:
        """Return where a path of the container is."""
        for place in sorted(self.mounts, key=len, reverse=True):
            if f"{inside}/".startswith(f"{place}/"):
                return self.mounts[place] / inside[len(place) :].strip("/")
        return self.root / inside.strip("/")

    def here(self, text: str) -> str:
        """Return a word or a variable with the places and ports of this machine."""
        text = self._places_here(text, {*self.mounts, "/dev", "/proc"})
        for port, real in self.ports.items():
            text = re.sub(rf"(127\.0\.0\.1)?:{port}\b", f"127.0.0.1:{real}", text)
        return text

    def file_here(self, text: str) -> str:
        """Return what stands in a file with the mounted places of this machine."""
        return self._places_here(text, self.mounts)

    def _places_here(self, text: str, places: Iterable[str]) -> str:
        longest = sorted(places, key=len, reverse=True)
        known = rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])"
        return re.sub(known, lambda found: str(self.path(found[0])), text) if longest else text

    def there(self, text: str) -> str:
        """Return what was said with the places of the container."""
        for place, path in self.mounts.items():
            text = text.replace(str(path), place)
        return text.replace(str(self.root), "")


class Container:
    """One container of a pod; it has not been started when it is made."""

    def __init__(
        self,
        spec: Object,
        image: Image,
        view: View,
        known: Mapping[str, str],
        environment: Mapping[str, str],
    ) -> None:
        """``known`` has the values of fields that variables may ask for."""
        self.name, self._spec, self._view = str(spec["name"]), spec, view
        self._image = image
        self._envs = {
            "PATH": f"{view.root}/bin:{BIN}:{os.defpath}",
            "HOSTNAME": known["metadata.name"],
            **environment,
        }
        for one in spec.get("env", ()):
            source = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            self._envs[one["name"]] = known[source] if source else one.get("value", "")
        self._mounts = {
            one["mountPath"]: bool(one.get("readOnly")) for one in spec.get("volumeMounts", ())
        }
        self.log = view.root / f"{self.name}.log"
        self.log.touch()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def exit_code(self) -> int | None:
        """None as long as it has not ended."""
        return None if self._process is None else self._process.poll()

    def start(self, options: RunOptions | None) -> None:
        """Start it with what its devices bring."""
        if options is not None:
            self._envs |= options.envs
            for device in options.devices:
                inside = device.container_path.removeprefix(str(self._view.node))
                self._link(inside, device.host_path)
            for mount in options.mounts:
                self._link(mount.container_path, mount.host_path)
                self._mounts[mount.container_path] = mount.read_only
        spec = self._spec
        words = [*spec.get("command", self._image), *spec.get("args", ())]
        expanded = [
            re.sub(r"\$\((\w+)\)", lambda found: self._envs[found[1]], one) for one in words
        ]
        self._link("/dev/null", "/dev/null")
        proc = self._view.root / "proc"
        (proc / "1").mkdir(parents=True, exist_ok=True)
        environ = "".join(f"{name}={value}\0" for name, value in self._envs.items())
        (proc / "1/environ").write_text(environ)
        mounts = {place: "ro" if only else "rw" for place, only in self._mounts.items()}
        lines = (f"none {place} none {way} 0 0\n" for place, way in mounts.items())
        (proc / "mounts").write_text("".join(["overlay / overlay rw 0 0\n", *lines]))
        with self.log.open("ab") as log:
            self._process = self.run(expanded, log.fileno(), subprocess.STDOUT)

    def run(self, words: Sequence[str], out: int, err: int) -> subprocess.Popen[bytes]:
        """Start another process in the container; ``OSError`` if there is no such command."""
        envs = {name: self._view.here(value) for name, value in self._envs.items()}
        if self._image:  # a plugin's: where it looks for what a kubelet has
            name = Path(self._image[0]).name
            for variable, place in _KNOWN.items():
                path = self._view.path(place.format(name))
                envs |= {variable: str(path)} if path.exists() else {}
        here = [self._view.here(word) for word in words]
        program = here[0] if "/" in here[0] else _find(here[0], envs["PATH"])
        return subprocess.Popen(
            [program, *here[1:]],
            env=envs,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )

    def _link(self, inside: str, target: str) -> None:
        link = self._view.path(inside)
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(target)

    def said(self) -> str:
        return self._view.there(self.log.read_text(errors="replace"))

    def is_ready(self) -> bool:
        """Tell what the readiness probe says; without one, it is enough to run."""
        probe = self._spec.get("readinessProbe")
        if self._process is None or self._process.poll() is not None:
            return False
        if probe is None:
            return True
        ports = {one["name"]: one["containerPort"] for one in self._spec["ports"]}
        port = self._view.ports[ports[probe["httpGet"]["port"]]]
        try:
            with urlopen(f"http://127.0.0.1:{port}{probe['httpGet']['path']}", timeout=5):
                return True
        except (URLError, OSError):
            return False

    def stop(self, grace: float) -> None:
        """End it, and all that it started."""
        if self._process is None:
            return
        process, self._process = self._process, None
        _kill(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
        _kill(process, signal.SIGKILL)
        process.wait()


def _kill(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _find(name: str, path: str) -> str:
    for place in path.split(":"):
        if (Path(place) / name).exists():
            return str(Path(place) / name)
    raise FileNotFoundError(f'exec: "{name}": executable file not found in $PATH')
