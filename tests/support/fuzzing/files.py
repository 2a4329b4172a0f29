"""Files that administrators and other programs write."""

import contextlib
import io
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from deviceplugin._config.settings import Settings, dump
from deviceplugin.errors import ConfigError
from deviceplugin.kit.cdi._files import SpecError, names, read
from deviceplugin.tools.agent import _sections
from deviceplugin.tools.agent._sections import named_in, settings_of
from deviceplugin_cli.migrate import _cli as migrate
from deviceplugin_gpu.container.nvidia_ctk import KIND, Toolkit
from deviceplugin_gpu.snapshot import Gpu
from deviceplugin_simulated.scenario import load
from deviceplugin_simulated.settings import SimulatedSettings
from fuzzing.cluster import SPECS
from fuzzing.samples import JSON, TABS, TOML, YAML, seeds
from fuzzing.target import Target, reads_file
from kustomize import documents
from manifests.kustomize import ROOT
from migration.peers import config_map, daemon_set, mounting

_BLOCK: Final = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FORMS: Final = (YAML, TABS, JSON, TOML)


_SETTINGS: Final = {name: _sections.hosted(name).settings for name in _sections.names()}


def _documents(name: str) -> Iterator[Any]:
    """Yield configurations of a plugin: all defaults, those of its page, and the deployment's."""
    defaults = dump(_SETTINGS[name]())
    yield {key: one for key, one in defaults.items() if one is not None}
    yield from (spec[name] for spec in SPECS if name in spec)
    page = (ROOT / f"plugins/{name}/README.md").read_text(encoding="utf-8")
    files = [*ROOT.glob(f"plugins/{name}/*.yaml"), ROOT / f"deployments/{name}/config.yaml"]
    for text in [*_BLOCK.findall(page), *(file.read_text() for file in files)]:
        (found,) = documents(text)
        yield {"devices": found} if name == "generic" and isinstance(found, list) else found


def _agent(path: Path) -> None:
    named = named_in(path, _SETTINGS)
    dump(settings_of({name: _SETTINGS[name] for name in named}).of_file(path))


def _plugins() -> Iterator[Target]:
    whole = {}
    for name, settings in _SETTINGS.items():
        mappings = [one for one in _documents(name) if isinstance(one, Mapping)]
        found = [one for one in mappings if "kind" not in one]  # that would be a manifest
        whole[name] = found[-1]
        read = partial(_configuration, settings)
        yield Target(
            f"configuration of {name}",
            seeds(*found, forms=_FORMS),
            reads_file(read),
            (ConfigError,),
        )
    yield Target(
        "configuration of several", seeds(whole, forms=_FORMS), reads_file(_agent), (ConfigError,)
    )


def _configuration(settings: type[Settings], path: Path) -> None:
    dump(settings.of_file(path))


_RESOURCE: Final = {
    "count": 3,
    "id": "gpu-{index}",
    "numa": [0, 1],
    "nodes": ["/dev/null"],
    "mounts": ["/etc/hostname"],
    "envs": {"A_{index}": "{id}"},
    "attributes": {"a": 1},
}
_SCENARIOS: Final = (
    {
        "resources": {"example.com/gpu": _RESOURCE},
        "timeline": [{"at": "10s", "do": "unhealthy", "devices": "gpu-1", "for": "20s"}],
        "random": {"every": "2s", "lasting": "3s", "faults": ["unplug"], "until": "1h"},
        "seed": 1,
    },
    {"profile": "edge"},
)


def _scenario(path: Path) -> None:
    load(SimulatedSettings(devices=path)).life()


def _migrate(path: Path) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = migrate.main([str(path)])
    assert status in (0, 2)
    if not status:
        yaml.safe_load(out.getvalue())


_DEVICE: Final = "name: a\ngroups: [{count: 2, paths: [{path: /dev/a}]}]"
_RULES: Final = "- {devicematch: ^video[0-9]*$, nummaxdevices: 2}\n"
_POD: Final[dict[str, Any]] = {
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"a": "b"},
    "priorityClassName": "high",
}
_CONTAINER: Final = {
    "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {}}}],
    "resources": {"limits": {"cpu": "50m", "memory": "20Mi"}},
    "securityContext": {"privileged": True},
}
_PEERS: Final = (
    daemon_set("squat/generic-device-plugin", "--device", _DEVICE, **_POD, container=_CONTAINER),
    {
        "kind": "List",
        "items": [
            daemon_set("smarter-device-manager", **mounting("c", "/root/config")),
            config_map("c", **{"conf.yaml": _RULES}),
        ],
    },
    daemon_set("nvcr.io/nvidia/k8s-device-plugin:v0.20.0", "--mig-strategy=single", **_POD),
    daemon_set("rocm/k8s-device-plugin:1.31.0.9", "-pulse=30", **_POD, container=_CONTAINER),
    daemon_set("intel/intel-gpu-plugin", "-shared-dev-num=2", "-enable_monitoring"),
    daemon_set("intel/intel-fpga-plugin", "-mode=region", **_POD),
    {"image": {"repository": "nvcr.io/nvidia/k8s-device-plugin"}, "migStrategy": "single"},
    {"image": {"repository": "smarter-device-manager"}, "config": _RULES, "nodeSelector": {}},
)

_NODES: Final = {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0"}]}
_LIBRARY: Final = "/usr/lib/libcuda.so.550.1"
_CDI: Final = {
    "cdiVersion": "0.6.0",
    "kind": KIND,
    "annotations": {"a": "b"},
    "devices": [{"name": "0", "annotations": {}, "containerEdits": _NODES}],
    "containerEdits": {
        "env": ["A=b"],
        "mounts": [{"hostPath": _LIBRARY, "containerPath": "/a", "options": ["ro"]}],
        "hooks": [{"hookName": "createContainer", "path": "/bin/a", "args": ["a"], "env": []}],
        "additionalGids": [1],
    },
}
_GPU: Final = Gpu(index=0, uuid="GPU-0", minor=0, pci="0000:01:00.0", numa=None, name="L4")


def _toolkit(path: Path) -> None:
    generated = Toolkit([path.parent]).find()
    generated.match(_GPU, None, "550.1", ["/dev/nvidia0"])
    for file in generated.files:
        assert isinstance(file.gone(lambda _: False), str)


def _specification(path: Path) -> None:
    names(read(path))


TARGETS: Final = (
    *_plugins(),
    Target("scenario", seeds(*_SCENARIOS, forms=_FORMS), reads_file(_scenario), (ConfigError,)),
    Target("manifest of a peer", seeds(*_PEERS, forms=[YAML, TABS]), reads_file(_migrate)),
    Target("NVIDIA's CDI", seeds(_CDI, forms=[YAML, JSON]), reads_file(_toolkit, "nvidia")),
    Target("CDI", seeds(_CDI, forms=[YAML, JSON]), reads_file(_specification), (SpecError,)),
)
