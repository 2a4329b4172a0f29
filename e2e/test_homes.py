"""Every plugin from installation to removal, in every home."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
import pytest
import yaml

from fpga.trees import AFU, INTERFACE, OTHER_AFU
from homes.home import Given, Home, Plugin

GENERIC = """
devices:
  - name: e2e-full
    groups:
      - {count: 2, select: {subsystem: mem, name: full}, mountPath: /dev/e2e-full}
    env: {E2E_FULL: "{path}"}
    annotations: {squat.ai/e2e: "{path}"}
    mounts: [{path: /proc/version, mountPath: /e2e/version, readOnly: true}]
"""
FUSE = """
devices:
  - name: e2e-fuse
    groups:
      - {select: {subsystem: misc, name: fuse}, mountPath: /dev/e2e-fuse, permissions: r}
"""
GOPHER = Plugin("gopher", "example.com/gopher", 2, files="/etc/gophers")
SIMULATED = Plugin(
    "simulated",
    "example.com/simple-device",
    2,
    environment={"DP_ANNOTATION_PREFIX": "example.com/e2e"},
)
GPU = Plugin("gpu", "nvidia.com/gpu", None, environment={"DP_PASS_DEVICE_SPECS": "true"})
# What the cards have already: the hook refuses a container that asks for nothing.
FPGA = Plugin(
    "fpga",
    "fpga.intel.com/region-*",
    None,
    asks={"FPGA_REGION_1": INTERFACE, "FPGA_AFU_1": AFU},
)


def case(plugin: Plugin, *more: object) -> object:
    mark = getattr(pytest.mark, plugin.name)
    return pytest.param(
        plugin, *more, marks=mark, id=plugin.resource.rpartition("/")[2].strip("-*")
    )


EXAMPLES = [
    case(GOPHER, "^my gophers are g(ary,gina|ina,gary)$"),
    case(SIMULATED, "^SIMULATED_.+=/dev/[01]$"),
    case(Plugin("generic", "devic.es/fuse", None), r"^c.* 10, +229 .* /dev/fuse$"),
    case(FPGA, "(dfl|intel-fpga)-port"),
]
CASES = [
    case(GOPHER),
    case(SIMULATED),
    case(Plugin("generic", "devic.es/e2e-full", 2, config=GENERIC)),
    case(GPU),
    case(FPGA),
]
each = pytest.mark.parametrize("plugin", CASES)
EXAMPLE = Path(__file__).parents[1] / "demo/examples"
Install = Callable[[Plugin], tuple[str, int]]


@pytest.fixture
def installed(home: Home) -> Install:
    def install(plugin: Plugin) -> tuple[str, int]:
        home.install(plugin)
        if plugin.files:
            home.add_file("gary")
            home.add_file("gina")
        return home.offer(plugin)

    return install


def is_gopher(given: Given) -> None:
    assert given.envs["Gopher"] in {"gary", "gina"}
    assert not given.annotations


def is_simulated(given: Given) -> None:
    (name,) = (name for name in given.envs if name.startswith("SIMULATED_"))
    device = name.removeprefix("SIMULATED_")
    assert given.annotations in (None, {f"example.com/e2e-{device}": ""})


def is_full(given: Given) -> None:
    assert "/dev/full" == given.envs["E2E_FULL"]
    assert "/dev/e2e-full" in given.nodes
    assert given.mounts["/e2e/version"]
    assert given.annotations in (None, {"squat.ai/e2e": "/dev/full"})


def is_gpu(given: Given) -> None:
    assert re.fullmatch(r"GPU-[0-9a-f-]{36}", given.envs["NVIDIA_VISIBLE_DEVICES"])
    assert 1 == sum(bool(re.fullmatch(r"/dev/nvidia\d+", node)) for node in given.nodes)
    assert not given.annotations


def is_fpga(given: Given) -> None:
    assert any(re.fullmatch("/dev/(dfl|intel-fpga)-port.*", node) for node in given.nodes)
    expected = {"com.intel.fpga.mode": "fpga.intel.com/region"}
    assert given.annotations in (None, expected)


LOOKS: Mapping[str, Callable[[Given], None]] = {
    "gopher": is_gopher,
    "simulated": is_simulated,
    "generic": is_full,
    "gpu": is_gpu,
    "fpga": is_fpga,
}


@each
def test_a_pod_gets_what_it_asks_for_and_the_next_one_is_refused(
    home: Home, plugin: Plugin, installed: Install
) -> None:
    resource, count = installed(plugin)
    LOOKS[plugin.name](home.run("first", resource, 1))
    assert resource in home.refusal(resource, count)
    assert f'resource="{resource}"' in home.metrics()
    home.delete("first")
    home.run("second", resource, count)


OPEN = '(: < "{0}") 2>/dev/null && echo r; (: >> "{0}") 2>/dev/null && echo w'


@pytest.mark.parametrize(
    ("plugin", "node", "rights"),
    [
        case(Plugin("generic", "devic.es/e2e-fuse", None, config=FUSE), "e2e-fuse", "r"),
        case(GPU, r"nvidia\d+", "rw"),
        case(FPGA, "(dfl|intel-fpga)-port.*", "rw"),
    ],
)
def test_a_container_can_open_its_device_as_far_as_it_is_allowed_to_and_no_other(
    home: Home, plugin: Plugin, node: str, rights: str, installed: Install
) -> None:
    resource, count = installed(plugin)
    nodes = home.run("owner", resource, count).nodes
    path = min(path for path in nodes if re.fullmatch(f"/dev/{node}", path))
    assert rights == "".join(home.execute("owner", OPEN.format(path)).split())
    numbers = home.execute("owner", f"stat -c '0x%t 0x%T' {path}").split()
    other = home.run("other", resource, 0).nodes
    assert path not in other
    # Whoever may make the node may not open it.
    home.execute("other", f"mknod /tmp/made c $(({numbers[0]})) $(({numbers[1]}))")
    assert "made" in home.execute("other", "ls /tmp")
    assert "" == home.execute("other", f"[ -c /tmp/made ] && {OPEN.format('/tmp/made')}").strip()


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations"])
def test_a_container_gets_its_gpu_by_cdi_alone(
    home: Home, strategy: str, installed: Install
) -> None:
    home.need_cdi()
    environment = {"DP_DEVICE_LIST_STRATEGY": strategy}
    plugin = Plugin("gpu", GPU.resource, None, environment=environment, components=("cdi",))
    resource, _ = installed(plugin)
    given = home.run("owner", resource, 1)
    assert "void" == given.envs["NVIDIA_VISIBLE_DEVICES"]
    (path,) = (node for node in given.nodes if re.fullmatch(r"/dev/nvidia\d+", node))
    assert ["r", "w"] == home.execute("owner", OPEN.format(path)).split()


@pytest.mark.fpga
def test_a_container_whose_function_cannot_be_had_is_not_started_by_its_hook(
    home: Home, installed: Install
) -> None:
    home.need_cdi()
    installed(FPGA)
    pod = yaml.safe_load((EXAMPLE / "fpga/pod.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    (wish,) = (one for one in container["env"] if one["name"] == "FPGA_AFU_1")
    wish["value"] = OTHER_AFU
    with pytest.raises(grpc.RpcError, match=f"no bitstream {OTHER_AFU}.gbs or .aocx"):
        home.run_example(pod)


@pytest.mark.parametrize(("plugin", "printed"), EXAMPLES)
def test_an_example_prints_what_its_page_says(
    home: Home, plugin: Plugin, printed: str, installed: Install
) -> None:
    installed(plugin)
    pod = EXAMPLE / plugin.name / "pod.yaml"
    said = home.run_example(yaml.safe_load(pod.read_text()))
    assert re.search(printed, said, re.MULTILINE)


@each
def test_a_new_plugin_pod_disturbs_nobody(home: Home, plugin: Plugin, installed: Install) -> None:
    resource, count = installed(plugin)
    home.run("keeper", resource, 1)
    home.restart_plugin()
    home.wait_allocatable(resource, count)
    if count > 1:
        home.run("other", resource, 1)
    assert home.is_running("keeper")


@pytest.mark.gopher
def test_devices_come_and_go(home: Home, installed: Install) -> None:
    resource, _ = installed(GOPHER)
    home.add_file("gus")
    home.wait_allocatable(resource, 3)
    home.remove_file("gus")
    home.wait_allocatable(resource, 2)


@each
def test_devices_are_back_after_a_restart_of_the_kubelet(
    home: Home, plugin: Plugin, installed: Install
) -> None:
    resource, count = installed(plugin)
    home.restart_kubelet()
    home.wait_allocatable(resource, count)
    home.run("after", resource, 1)


@each
def test_nothing_is_left_after_the_plugin_is_uninstalled(
    home: Home, plugin: Plugin, installed: Install
) -> None:
    installed(plugin)
    home.uninstall()
