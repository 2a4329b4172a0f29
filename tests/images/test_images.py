"""What is in the images that `make images` has built, and that they run as they are deployed."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import images
from archive import Archive
from containers import image_commands
from containers.image_tree import judge, small_node
from containers.unshare import POSSIBLE, Container, first_process
from deviceplugin_operator import liveness
from deviceplugin_testing.conformance._subject import free_port
from deviceplugin_testing.simulator import SimulatedKubelet
from manifests.kustomize import overlay, render
from operators import fleet_cluster
from operators.fleet_cluster import SPACE
from patience import eventually

ROOT = Path(__file__).parents[2]


def archives(title: str) -> list[Path]:
    return sorted((ROOT / "dist/images").glob(f"{title}-*.tar"))


BUILT = [
    one.name
    for one in map(images.image, [*images.plugins(), images.OPERATOR])
    if archives(one.title)
]
PLUGINS = [name for name in BUILT if name != images.OPERATOR]
pytestmark = [
    pytest.mark.images,
    pytest.mark.skipif(not BUILT, reason="no images: make images"),
]
running = pytest.mark.skipif(not POSSIBLE, reason="needs root and unshare")
each = pytest.mark.parametrize("name", BUILT)
each_plugin = pytest.mark.parametrize("plugin", PLUGINS)


class Image:
    """An image and its root file system."""

    def __init__(self, name: str, root: Path) -> None:
        self.made = images.image(name)
        (self.path,) = archives(self.made.title)
        archive = Archive(self.path)
        archive.extract(root)
        root.chmod(0o755)  # the operator's user is not root
        self.name, self.root, self.config = name, root, archive.config
        self.files = {str(path.relative_to(root)): path for path in root.rglob("*")}


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Image]:
    known: dict[str, Image] = {}

    def get(name: str) -> Image:
        if name not in known:
            known[name] = Image(name, tmp_path_factory.mktemp(name))
        return known[name]

    return get


class Node:
    """A simulated kubelet, and a plugin's image on it as its DaemonSet says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet = SimulatedKubelet(root / "kubelet")
        self.kubelet.start()
        self.host = {
            "/var/lib/kubelet/device-plugins": self.kubelet.plugin_dir,
            "/var/lib/kubelet/plugins_registry": self.kubelet.registry_dir,
            "/var/lib/kubelet/pod-resources": self.kubelet.pod_resources_socket.parent,
            "/var/run/cdi": root / "cdi",
        }
        self.port = 0

    @contextmanager
    def running(
        self, image: Image, *flags: str, components: tuple[str, ...] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        folder = overlay(self.root, image.name, *components)
        made = Container(image.root, image.config, render(folder), self.host, self.root / "config")
        self.port = free_port()
        listen = {"DP_HTTP_ADDRESS": f"127.0.0.1:{self.port}"}
        process = made.start(*flags, environment=listen)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            with process:
                pass

    def answers(self, path: str) -> bool:
        return answers(f"http://127.0.0.1:{self.port}{path}")


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except URLError:
        return False


@pytest.fixture
def node() -> Iterator[Node]:
    with TemporaryDirectory(prefix="node-") as root:  # pytest's is too long for sockets
        made = Node(Path(root))
        yield made
        made.kubelet.stop()
    assert [] == list(made.kubelet.crashes)


@each
def test_an_image_of_debian_has_neither_shell_nor_compiler_nor_installer(
    name: str, image: Callable[[str], Image]
) -> None:
    unwanted = re.compile(r"(^|/)(sh|bash|dash|busybox|apt|gcc|cc|ld|pip[0-9.]*|ensurepip)$")
    made = image(name)
    assert [] == [name for name in made.files if unwanted.search(name)]
    assert [] == [name for name, path in made.files.items() if is_set_user_id(path)]
    commands = [entry.get("created_by", "") for entry in made.config["history"]]
    assert [] == [text for text in commands if "/bin/sh -c" in text and "#(nop)" not in text]
    assert "ID=debian" in (made.root / "usr/lib/os-release").read_text()


def is_set_user_id(path: Path) -> bool:
    return not path.is_symlink() and bool(path.stat().st_mode & 0o6000) and path.is_file()


@each
def test_all_of_the_program_is_compiled(name: str, image: Callable[[str], Image]) -> None:
    made = image(name)
    files = {path: file for path, file in made.files.items() if made.made.folder in path}
    sources = [Path(path) for path in files if path.endswith(".py")]
    assert len(sources) > 100
    for source in sources:
        (code,) = files[str(source)].parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc")
        assert 1 == int.from_bytes(code.read_bytes()[4:8], "little"), "never checked"


@each
def test_the_labels_say_what_it_is(name: str, image: Callable[[str], Image]) -> None:
    made = image(name)
    labels = {key.rpartition(".")[2]: text for key, text in made.config["config"]["Labels"].items()}
    assert made.made.title == labels["title"]
    assert made.path.stem == f"{made.made.title}-{labels['version']}"
    assert re.fullmatch("[0-9a-f]{40}", labels["revision"])
    assert "65532:65532" == made.config["config"]["User"]


@each
def test_the_bill_of_materials_is_what_is_locked(name: str, image: Callable[[str], Image]) -> None:
    made = image(name)
    inside = json.loads((made.root / made.made.folder / "sbom.cdx.json").read_text())
    beside = json.loads(made.path.with_suffix(".cdx.json").read_text())
    names = {part["purl"] for part in inside["components"]}
    besides = {part["purl"] for part in beside["components"] if "purl" in part}
    assert names < besides
    assert any("&upstream=openssl" in purl and "distro=" in purl for purl in besides)
    assert any(re.search(r"/python@3|/python3\.\d+-minimal@", purl) for purl in besides)
    lock = (ROOT / "requirements.lock").read_text()
    for part in inside["components"]:
        if not part["name"].startswith("deviceplugin"):
            assert f"{part['name']}=={part['version']} " in lock, "make images again"
            assert f"sha256:{part['hashes'][0]['content']}" in lock


@each
def test_the_documented_sizes_are_those_of_the_image(
    name: str, image: Callable[[str], Image]
) -> None:
    text = (ROOT / "build/README.md").read_text()
    rows = re.findall(rf"^\| {name} \|(.+)\|$", text, re.MULTILINE)
    if not rows:
        pytest.skip("its sizes are not documented")
    (row,) = rows
    shown = [float(cell) for cell in row.split("|")[:4]]
    sizes = json.loads(image(name).path.with_suffix(".sizes.json").read_text())
    names = ("plugin", "plugin_compressed", "whole", "whole_compressed")
    assert shown == pytest.approx([sizes[name] / 2**20 for name in names], rel=0.1)


@running
@each
def test_every_command_of_an_image_runs_or_says_that_the_image_lacks_it(
    name: str, image: Callable[[str], Image]
) -> None:
    made = image(name)
    node = small_node(made.root / "tmp/node")
    done = subprocess.run(
        [
            "chroot",
            made.root,
            "python3",
            "-c",
            Path(image_commands.__file__).read_text(),
            "/tmp/node",
        ],
        env=dict(entry.split("=", 1) for entry in made.config["config"]["Env"]),
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(node)
    assert "" == done.stderr
    judge(json.loads(done.stdout))


@running
@each_plugin
def test_a_node_without_devices_costs_a_quiet_process_that_ends_on_sigterm(
    plugin: str, image: Callable[[str], Image], node: Node
) -> None:
    node.host |= {"/etc/gophers": node.root / "gophers"}
    with node.running(image(plugin)) as process:
        eventually(lambda: node.answers("/healthz"))
        inside = first_process(process)
        assert "1" == re.findall(r"^NSpid:.*\s(\d+)$", status(inside), re.MULTILINE)[0]
        assert {"0000000000000000"} == set(
            re.findall(r"^Cap\w+:\s+(\w+)", status(inside), re.MULTILINE)
        )
        assert "1" == re.findall(r"^NoNewPrivs:\s+(\d)", status(inside), re.MULTILINE)[0]
        subprocess.run(["kill", "-TERM", str(inside)], check=True)
        assert 0 == process.wait(5)
    assert ["kubelet.sock"] == [one.name for one in node.kubelet.plugin_dir.glob("*.sock")]


def status(process: int) -> str:
    return Path(f"/proc/{process}/status").read_text()


def needs(plugin: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(plugin not in BUILT, reason=f"no image of {plugin}")


@running
@needs(images.OPERATOR)
def test_the_operators_image_makes_daemon_sets(
    image: Callable[[str], Image], tmp_path: Path
) -> None:
    made = image(images.OPERATOR)
    folder = ROOT / "deployments/operator/operator"
    container = Container(made.root, made.config, render(folder), {}, tmp_path)
    with fleet_cluster.running(1) as fleet:
        words = (f"--api-server={fleet.url}",)
        environment = {"POD_NAMESPACE": SPACE, "IMAGE_PREFIX": "registry.example.com/"}
        with container.start(*words, environment=environment) as process:
            fleet.apply("sim", plugin="simulated")
            eventually(lambda: fleet.is_ready("sim"))
            inside = first_process(process)
            alive = Path(f"/proc/{inside}/root/tmp/alive")
            eventually(lambda: liveness.fault(alive) == "")
            subprocess.run(["kill", "-TERM", str(inside)], check=True)
            _, log = process.communicate(timeout=10)
    assert (0, "") == (process.returncode, log)
    (pod,) = fleet.pods().values()
    (own,) = pod["spec"]["containers"]
    assert own["image"].startswith("registry.example.com/simulated-device-plugin:")


@running
@needs("generic")
def test_the_generic_image_reads_links_of_udev_with_its_component(
    image: Callable[[str], Image], node: Node
) -> None:
    udev = node.root / "udev"
    udev.mkdir()
    (udev / "c1:3").write_text("S:nothing-at-all\n")
    node.host["/run/udev/data"] = udev
    entry = {
        "name": "nothing",
        "id": "serial",
        "groups": [{"select": {"subsystem": "mem", "link": "/dev/nothing-at-all"}}],
    }
    flag = f"--device={json.dumps(entry)}"
    with node.running(image("generic"), flag, components=("udev",)):
        node.kubelet.wait(lambda: "devic.es/nothing" in node.kubelet.registered, timeout=30)
    with node.running(image("generic"), flag):
        eventually(lambda: node.answers("/healthz"))
        assert "devic.es/nothing" not in node.kubelet.registered


@running
@needs("generic")
def test_the_generic_image_sees_device_nodes_of_the_host_with_its_component(
    image: Callable[[str], Image], node: Node
) -> None:
    host = node.root / "dev"
    host.mkdir()
    for name, minor in {"port7": 3, "null": 3, "random": 8, "urandom": 9}.items():
        os.mknod(host / name, stat.S_IFCHR | 0o666, os.makedev(1, minor))
    node.host["/dev"] = host
    entry = {"name": "port", "id": "serial", "groups": [{"paths": [{"path": "/dev/port*"}]}]}
    with node.running(image("generic"), f"--device={json.dumps(entry)}", components=("host-dev",)):
        node.kubelet.wait_for("devic.es/port", {"port-port7"}, timeout=30)


@running
@needs("generic")
def test_the_generic_image_hears_of_kernel_events(
    image: Callable[[str], Image], node: Node
) -> None:
    with node.running(image("generic")) as process:
        eventually(lambda: node.answers("/healthz"))
        subprocess.run(["kill", "-TERM", str(first_process(process))], check=True)
        _, log = process.communicate(timeout=5)
    assert "kernel events unavailable" not in log


@running
@needs("fpga")
def test_the_fpga_images_init_container_puts_the_hook_on_the_host(
    image: Callable[[str], Image], node: Node
) -> None:
    manifests = render(ROOT / "deployments/fpga")
    (daemon_set,) = (one for one in manifests if one["kind"] == "DaemonSet")
    pod = daemon_set["spec"]["template"]["spec"]
    pod["containers"] = pod["initContainers"]
    host = {"/opt/intel/fpga-sw": node.root / "fpga-sw"}
    fpga = image("fpga")
    with Container(fpga.root, fpga.config, manifests, host, node.root).start() as process:
        _, log = process.communicate(timeout=60)
    assert (0, "") == (process.returncode, log)
    hook = node.root / "fpga-sw/intel-fpga-crihook"
    assert os.access(hook, os.X_OK)
    done = subprocess.run(
        [sys.executable, "-I", hook], input="{}", capture_output=True, text=True, check=False
    )
    assert "fpga-hook: the state on standard input: no bundle\n" == done.stderr
