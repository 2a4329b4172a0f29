"""Every plugin from installation to removal, in every home."""

import re
from pathlib import Path

import pytest
import yaml

from fpga.trees import OTHER_AFU
from homes.case import cases
from homes.home import Home, NotStartedError, Plugin, offered

pytestmark = pytest.mark.slow  # a second each, but some of it for every plugin
CASES = cases()


def marked(plugin: Plugin, *more: object) -> object:
    mark = getattr(pytest.mark, plugin.name)
    return pytest.param(
        plugin, *more, marks=mark, id=plugin.resource.rpartition("/")[2].strip("-*")
    )


each = pytest.mark.parametrize("plugin", [marked(case.plugin) for case in CASES.values()])
EXAMPLES = [
    marked(case.example.plugin, case.example.prints) for case in CASES.values() if case.example
]
OPENED = [
    marked(case.opened.plugin, case.opened.node, case.opened.rights)
    for case in CASES.values()
    if case.opened
]
EXAMPLE = Path(__file__).parents[1] / "demo/examples"


def install(home: Home, plugin: Plugin) -> tuple[str, int]:
    home.install(plugin)
    return offered(home, plugin)


@each
def test_a_plugin_serves_pods_from_its_installation_to_its_removal(
    home: Home, plugin: Plugin
) -> None:
    resource, count = install(home, plugin)
    CASES[plugin.name].look(home.run("first", resource, 1))
    assert resource in home.refusal(resource, count)
    assert f'resource="{resource}"' in home.metrics()

    home.restart_plugin()
    home.wait_allocatable(resource, count)
    assert home.is_running("first")
    home.delete("first")
    home.run("second", resource, count)
    home.delete("second")

    if home.may_restart_kubelet:
        home.restart_kubelet()
        home.wait_allocatable(resource, count)
        home.run("third", resource, 1)
    home.uninstall()


OPEN = '(: < "{0}") 2>/dev/null && echo r; (: >> "{0}") 2>/dev/null && echo w'


@pytest.mark.parametrize(("plugin", "node", "rights"), OPENED)
def test_a_container_can_open_its_device_as_far_as_it_is_allowed_to_and_no_other(
    home: Home, plugin: Plugin, node: str, rights: str
) -> None:
    home.need_containers()
    resource, count = install(home, plugin)
    nodes = home.run("owner", resource, count).nodes
    path = min(path for path in nodes if re.fullmatch(f"/dev/{node}", path))
    assert rights == "".join(home.execute("owner", OPEN.format(path)).split())
    numbers = home.execute("owner", f"stat -c '0x%t 0x%T' {path}").split()
    other = home.run("other", resource, 0).nodes
    assert path not in other
    # The node may be created, but not opened.
    home.execute("other", f"mknod /tmp/made c $(({numbers[0]})) $(({numbers[1]}))")
    assert "made" in home.execute("other", "ls /tmp")
    assert "" == home.execute("other", f"[ -c /tmp/made ] && {OPEN.format('/tmp/made')}").strip()


@pytest.mark.gpu
@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations"])
def test_a_container_gets_its_gpu_by_cdi_alone(home: Home, strategy: str) -> None:
    home.need_cdi()
    environment = {"DP_DEVICE_LIST_STRATEGY": strategy}
    plugin = Plugin(
        "gpu", CASES["gpu"].plugin.resource, None, environment=environment, components=("cdi",)
    )
    resource, _ = install(home, plugin)
    given = home.run("owner", resource, 1)
    assert "void" == given.envs["NVIDIA_VISIBLE_DEVICES"]
    (path,) = (node for node in given.nodes if re.fullmatch(r"/dev/nvidia\d+", node))
    assert ["r", "w"] == home.execute("owner", OPEN.format(path)).split()


@pytest.mark.fpga
def test_a_container_whose_function_cannot_be_had_is_not_started_by_its_hook(home: Home) -> None:
    home.need_cdi()
    install(home, CASES["fpga"].plugin)
    pod = yaml.safe_load((EXAMPLE / "fpga/pod.yaml").read_text())
    (container,) = pod["spec"]["containers"]
    (wish,) = (one for one in container["env"] if one["name"] == "FPGA_AFU_1")
    wish["value"] = OTHER_AFU
    with pytest.raises(NotStartedError, match=f"no bitstream {OTHER_AFU}.gbs or .aocx"):
        home.run_example(pod)


@pytest.mark.parametrize(("plugin", "printed"), EXAMPLES)
def test_an_example_prints_what_its_page_says(home: Home, plugin: Plugin, printed: str) -> None:
    if plugin.devices is None:  # it has device nodes
        home.need_containers()
    install(home, plugin)
    pod = EXAMPLE / plugin.name / "pod.yaml"
    said = home.run_example(yaml.safe_load(pod.read_text()))
    assert re.search(printed, said, re.MULTILINE)


@pytest.mark.gopher
def test_devices_come_and_go(home: Home) -> None:
    resource, _ = install(home, CASES["gopher"].plugin)
    home.add_file("gus")
    home.wait_allocatable(resource, 3)
    home.remove_file("gus")
    home.wait_allocatable(resource, 2)
