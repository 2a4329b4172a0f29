"""Simulated devices with parts on a simulated cluster: pods with claims of mixed profiles."""

import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cluster.dra_objects import DRIVER, RESOURCE
from deviceplugin_cli.fleet._cli import main as fleet
from deviceplugin_simulated import SimulatedPlugin, SimulatedSettings, ctl_command
from drivers.dual_node import DualNode
from patience import PATIENCE, eventually
from plugin_process import Process, started

pytestmark = pytest.mark.slow


def _word(value: object) -> object:
    return f"{value.total_seconds()}s" if isinstance(value, timedelta) else value


class Divided:
    """A node with two devices of 8 slots, which claims get in parts."""

    def __init__(self, root: Path, node: DualNode) -> None:
        self.node, self.make = node, node.make
        self.state = root / "hardware.json"
        self._devices, self._control = root / "devices.json", root / "ctl"
        parts = {
            "counters": {"memory": 8},
            "profiles": {
                "1g": {"consumes": {"memory": 1}, "placements": [*range(8)]},
                "4g": {"consumes": {"memory": 4}, "placements": [0, 4], "size": 4},
            },
        }
        resource = {"count": 2, "id": "gpu-{index}", "parts": parts}
        self._devices.write_text(json.dumps({"resources": {RESOURCE: resource}}))
        for profile in ("1g", "4g"):
            rule = f'device.attributes["{DRIVER}"].profile == "{profile}"'
            both = f'device.driver == "{DRIVER}" && {rule}'
            spec = {"selectors": [{"cel": {"expression": both}}]}
            klass = {"kind": "DeviceClass", "metadata": {"name": profile}, "spec": spec}
            node.cluster.create(klass)

    def start(self) -> SimulatedPlugin:
        settings = SimulatedSettings(devices=self._devices, state_file=self.state)
        self.node.plugin = plugin = SimulatedPlugin(settings)  # type: ignore[assignment]
        self.node.start(protocol="dra", driver_name=DRIVER)
        return plugin

    @contextmanager
    def process(self) -> Iterator[Process]:
        """Run the plugin in a process of its own."""
        own = {"devices": self._devices, "state_file": self.state, "control_socket": self._control}
        given = {**asdict(self.node.settings(protocol="dra", driver_name=DRIVER)), **own}
        usual = asdict(SimulatedSettings())
        words = [f"--{k.replace('_', '-')}={_word(v)}" for k, v in given.items() if v != usual[k]]
        command = f"{sys.executable} -m deviceplugin_simulated"
        with started(self.node.kubelet.plugin_dir, *words, command=command) as process:
            eventually(self._control.is_socket)
            yield process

    def ctl(self, *words: str) -> None:
        assert 0 == ctl_command.run([*words, "--control-socket", str(self._control)])

    def pod(self, name: str, profile: str) -> None:
        self.make.claim(f"claim-{name}", deviceClassName=profile)
        main = {"name": "main", "image": "none", "resources": {"claims": [{"name": "d"}]}}
        claims = [{"name": "d", "resourceClaimName": f"claim-{name}"}]
        spec = {"containers": [main], "resourceClaims": claims}
        self.node.cluster.create({"kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def phase(self, name: str) -> str:
        return str(self.make.status(name).get("phase", ""))

    def running(self, *names: str) -> None:
        for name in names:
            self.node.wait_for_phase(name, "Running")

    def made(self) -> dict[str, Any]:
        """What is on the hardware, by id."""
        found: dict[str, Any] = json.loads(self.state.read_text())["parts"]
        return found

    def envs(self, name: str) -> dict[str, str]:
        (options,) = self.node.kubelet.pod(self.node.node.pod(name)).started.values()
        assert options
        return {k: v for k, v in options.envs.items() if k.startswith("PART_")}

    def end(self, *names: str) -> None:
        cluster = self.node.cluster
        for name in names:
            cluster.delete("Pod", name)
        eventually(lambda: not any(cluster.get("Pod", name) for name in names), str(names))
        for name in names:
            cluster.delete("ResourceClaim", f"claim-{name}")


@pytest.fixture
def divided(root: Path) -> Iterator[Divided]:
    with DualNode(root, sync_frequency=0.5) as node:
        yield Divided(root, node)


def test_pods_with_mixed_profiles_get_parts_that_go_with_them(
    divided: Divided, capsys: pytest.CaptureFixture[str]
) -> None:
    divided.start()
    for name, profile in (("a", "4g"), ("b", "1g"), ("c", "4g"), ("d", "4g"), ("e", "1g")):
        divided.pod(name, profile)
    divided.running("a", "b", "c", "d", "e")
    there = divided.made()
    profiles = Counter(one.partition("/")[2].partition("@")[0] for one in there)
    assert {"4g": 3, "1g": 2} == profiles
    memory = Counter[str]()
    for one in there.values():
        memory[one["whole"]] += one["consumes"]["memory"]
    assert max(memory.values()) <= 8
    ((_, identity),) = divided.envs("a").items()
    assert identity in {one["identity"] for one in there.values()}
    assert 0 == fleet([f"--api={divided.node.cluster.url}"])
    shown = "whole: 0 held, 0 possible; 1g: 2 made, 2 possible; 4g: 3 made, 0 possible"
    assert f"\n\n{RESOURCE}: {shown}\n" in capsys.readouterr().out
    divided.pod("f", "4g")
    eventually(lambda: "cannot allocate all claims" in divided.make.why_not("f"))
    divided.end("a")
    divided.running("f")
    divided.end("b", "c", "d", "e", "f")
    eventually(lambda: {} == divided.made())


def test_what_somebody_else_made_is_given_to_no_claim_and_stays(divided: Divided) -> None:
    plugin = divided.start()
    plugin._obey(b'{"do": "make", "devices": ["gpu-0/4g@0", "gpu-1/1g@7"]}')
    for name in "abcd":
        divided.pod(name, "4g")
    eventually(lambda: 2 == sum(divided.phase(name) == "Running" for name in "abcd"))
    there = divided.made()
    assert {"gpu-0/4g@0", "gpu-0/4g@4", "gpu-1/4g@0", "gpu-1/1g@7"} == there.keys()
    divided.end(*"abcd")
    eventually(lambda: {"gpu-0/4g@0", "gpu-1/1g@7"} == divided.made().keys())


def test_a_plugin_that_is_killed_amid_making_leaves_half_a_part_that_the_next_finishes(
    divided: Divided, capsys: pytest.CaptureFixture[str]
) -> None:
    with divided.process() as process:
        divided.ctl("slow", "*/4g@*", "--by=1h")
        divided.pod("a", "4g")
        eventually(divided.state.exists)  # from when on it is half made
        divided.ctl("crash")
        assert -signal.SIGKILL == process.process.wait(PATIENCE)
    ((_, half),) = divided.made().items()
    assert half["half"]
    with divided.process():
        divided.running("a")
        ((_, whole),) = divided.made().items()
        assert {**half, "half": False} == whole
        assert [whole["identity"]] == [*divided.envs("a").values()]
        divided.end("a")
        eventually(lambda: {} == divided.made())
    capsys.readouterr()
