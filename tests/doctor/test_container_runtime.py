"""What the container runtime is configured to: by its own word, and by what it reads."""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from containers.answering_runtime import HANGS, config, containerd, crio, of_containerd
from deviceplugin.checks import Node, RuntimeConfig, Verdict, runtime_config
from deviceplugin.tools.doctor.checks import _machine

MAIN = "etc/containerd/config.toml"
K3S = "var/lib/rancher/k3s/agent/etc/containerd"
RKE2 = "var/lib/rancher/rke2/agent/etc/containerd"
SOCKET = "run/containerd/containerd.sock"
PROGRAM = "/usr/bin/nvidia-container-runtime"
OLD, NEW = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
HTTP = b"HTTP/1.0 200 OK\r\nContent-Type: application/toml\r\n\r\n"


def toml(
    version: int = 3, *imports: str, plugin: str = "", default: str = "", **runtime: str
) -> str:
    """Return a file of containerd: its imports, and what it says of the runtime ``nvidia``."""
    plugin = plugin or (NEW if version >= 3 else OLD)
    lines = [f"version = {version}"] if version else []
    lines += ["imports = [" + ", ".join(f"'{one}'" for one in imports) + "]"] if imports else []
    lines += [f'[plugins."{plugin}".containerd]\ndefault_runtime_name = "{default}"'] * bool(
        default
    )
    lines += [f'[plugins."{plugin}".containerd.runtimes.nvidia.options]'] * bool(runtime)
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in runtime.items()), ""])


NVIDIA = toml(default="nvidia", BinaryName=f'"{PROGRAM}"')
OF_1 = toml(2, default="nvidia", BinaryName=f'"{PROGRAM}"')


@pytest.fixture
def node() -> Iterator[Node]:
    """Short, because the path of a socket has 107 bytes at most."""
    root = Path(tempfile.mkdtemp(prefix="dp"))
    yield replace(Node.at_root(root), timeout=20.0)
    shutil.rmtree(root)


def write(node: Node, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = node.at(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def read(node: Node, files: Mapping[str, str]) -> RuntimeConfig:
    write(node, files)
    return runtime_config(node)


def says(node: Node, verdict: Verdict = Verdict.WARNING) -> list[str]:
    found = [*runtime_config(node).findings()]
    return [f"{one.looked_at}: {one.found}" for one in found if verdict == one.verdict]


@pytest.mark.parametrize(
    "files",
    [
        {f"{RKE2}/config.toml": toml(3, f"/{RKE2}/config-v3.toml.d/*.toml"),
         f"{RKE2}/config-v3.toml.d/99-nvidia.toml": NVIDIA},
        {f"{K3S}/config.toml": toml(2, f"/{K3S}/config.toml.d/*.toml"),
         f"{K3S}/config.toml.d/99-nvidia.toml": OF_1},
        {"etc/k0s/containerd.toml": toml(2, "/run/k0s/containerd-cri.toml"),
         "run/k0s/containerd-cri.toml": OF_1},
        {"var/snap/microk8s/current/args/containerd.toml": OF_1},
        {MAIN: toml(3, "/etc/containerd/conf.d/*.toml"), "etc/containerd/conf.d/99.toml": NVIDIA},
        {MAIN: toml(3, "a/../b.toml"), "etc/containerd/b.toml": toml(3, "./c/d.toml"),
         "etc/containerd/c/d.toml": NVIDIA},
        {MAIN: toml(3, "config.toml", "b.toml", "b.toml"),
         "etc/containerd/b.toml": f'imports = ["config.toml"]\n{NVIDIA}'},
        {MAIN: toml(3, "*/.[^a]?.toml"), "etc/containerd/c/.bc.toml": NVIDIA,
         "etc/containerd/c/.ab.toml": toml(default="runc")},
        {MAIN: toml(3, "nothing/*.toml", "config.toml/*.toml") + NVIDIA.partition("\n")[2]},
        {MAIN: toml(3, "b.toml", default="runc"), "etc/containerd/b.toml": OF_1},
        {MAIN: toml(0, plugin="cri", default="nvidia", BinaryName=f'"{PROGRAM}"')},
        {MAIN: toml(3, plugin=OLD, default="runc") + NVIDIA.partition("\n")[2]},
        {"etc/crio/crio.conf": '[crio.runtime]\ndefault_runtime = "runc"\n',
         "etc/crio/crio.conf.d/b/c": f'[crio.runtime]\ndefault_runtime = "nvidia"\n'
         f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{PROGRAM}"\n',
         "etc/crio/crio.conf.d/a": '[crio.runtime.runtimes.nvidia]\nruntime_path = "/bin/x"\n'},
    ],
)  # fmt: skip
def test_what_a_runtime_imports_is_read(node: Node, files: Mapping[str, str]) -> None:
    found = read(node, files)
    assert "nvidia" == found.default
    assert PROGRAM == found.programs["nvidia"]
    assert () == (*found.faults, *found.unread)


def test_a_later_file_is_merged_by_containerd_2_and_replaces_the_plugin_in_1(node: Node) -> None:
    drop = f'[plugins."{{}}".containerd.runtimes.nvidia.options]\nBinaryName = "{PROGRAM}"\n'
    for version, plugin, default in ((2, OLD, ""), (3, NEW, "runc")):
        main = toml(version, "b.toml", default="runc", SystemdCgroup="true")
        found = read(node, {MAIN: main, "etc/containerd/b.toml": drop.format(plugin)})
        assert default == found.default
        assert (version == 3) == found.systemd["nvidia"]
        assert PROGRAM == found.programs["nvidia"]


def test_containerd_2_with_a_file_of_version_4_ignores_the_section_of_1(node: Node) -> None:
    found = read(node, {MAIN: toml(4, plugin=OLD, default="nvidia")})
    assert ("", True) == (found.default, found.cdi)


def test_links_lead_to_places_on_the_node(node: Node) -> None:
    write(node, {"opt/up/c.toml": NVIDIA})
    node.at("etc/containerd").mkdir(parents=True)
    node.at(MAIN).symlink_to("/opt/../opt/here/c.toml")
    node.at("opt/here").symlink_to("up")
    assert "nvidia" == runtime_config(node).default
    (node.root / MAIN).unlink()
    node.at(MAIN).symlink_to(f"/{MAIN}")
    assert [f"container runtime: {node.at(MAIN)}: Too many levels of symbolic links"] == says(node)


LONG = "a" * 300


@pytest.mark.parametrize(
    ("files", "says_so"),
    [
        ({MAIN: toml(3, "gone.toml")}, "gone.toml: No such file or directory"),
        ({MAIN: toml(3, "../pipe")}, "etc/pipe: not a regular file"),
        ({MAIN: toml(3, "../loop/*.toml")}, "etc/loop: Too many levels of symbolic links"),
        ({MAIN: "[a]\nb = 1\n[a]\nc = 2\n"}, "Cannot declare ('a',) twice"),
        ({MAIN: "a = " + "[" * 9000}, "config.toml: "),
        ({MAIN: "a = 1\n" * 200_000}, "config.toml: more than 1048576 bytes"),
        ({MAIN: toml(3, "d"), "etc/containerd/d/x": ""}, "d: Is a directory"),
        ({MAIN: 'imports = ["a\\u0000"]'}, "embedded null byte"),
        ({MAIN: toml(2, "b.toml"), "etc/containerd/b.toml": toml(3)}, "version 3 is higher than 2"),
        ({MAIN: toml(3, *["*/*.x"] * 60), **{f"etc/containerd/d/{n}": "" for n in range(400)}},
         "imports match more than 20000 names"),
        ({MAIN: toml(3, "d/*.toml"),
          **{f"etc/containerd/d/{n}.toml": "version = 3" for n in range(300)}},
         "is one of more than 256 files"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_and_makes_the_rest_uncertain(
    node: Node, files: Mapping[str, str], says_so: str
) -> None:
    node.at("etc").mkdir()
    node.at("etc/loop").symlink_to("loop")
    os.mkfifo(node.at("etc/pipe"))
    found = read(node, files)
    assert says_so in found.faults[0]
    assert any(says_so in one for one in says(node))
    assert not found.is_complete


def test_what_is_there_and_is_not_imported_is_named(node: Node) -> None:
    drop = "etc/containerd/conf.d/99-nvidia.toml"
    found = read(node, {MAIN: toml(3), drop: NVIDIA, "etc/containerd/conf.d/log.toml": ""})
    assert ("", (node.at(drop),)) == (found.default, found.unread)
    assert [f"{node.at(drop)}: is there, and nothing imports it"] == says(node)
    write(node, {f"etc/containerd/conf.d/x{number}.toml": "" for number in range(300)})
    assert (node.at(drop),) == runtime_config(node).unread, "the others are not of pods"
    node.at(drop).write_bytes(b"\xff")  # whatever it is, nothing imports it
    assert (node.at(drop),) == runtime_config(node).unread
    write(node, {MAIN: toml(3, "conf.d/*.toml")})
    assert () == runtime_config(node).unread, "it is imported, and cannot be read"
    write(node, {MAIN: "version = ["})
    assert () == runtime_config(node).unread, "nobody knows what this imports"


def test_containerd_1_takes_a_pattern_from_its_working_directory(node: Node) -> None:
    drop = "etc/containerd/conf.d/99-nvidia.toml"
    found = read(node, {MAIN: toml(2, "conf.d/*.toml"), drop: OF_1})
    assert ("", (node.at(drop),)) == (found.default, found.unread)
    with containerd(node.at(SOCKET), config(of_containerd())):
        assert node.at(drop) in runtime_config(node).files
    write(node, {"conf.d/a.toml": OF_1})
    assert "nvidia" == runtime_config(node).default


def test_a_file_of_another_containerd_is_named_and_not_read(node: Node) -> None:
    write(node, {MAIN: NVIDIA, f"{K3S}/config.toml": toml(3, default="runc")})
    assert () == runtime_config(node).unread, "either may be the right one"
    with containerd(node.at("run/k3s/containerd/containerd.sock"), None):
        found = runtime_config(node)
    assert ("runc", (node.at(MAIN),)) == (found.default, found.unread)
    assert "UNIMPLEMENTED" in found.silent[0]
    with (
        containerd(node.at("run/k3s/containerd/containerd.sock"), None),
        containerd(node.at(SOCKET), config(of_containerd())),
    ):
        assert [] == says(node, Verdict.UNKNOWN), "the first one is not for pods"


def test_folders_that_k0s_merges_itself_are_not_imports(node: Node) -> None:
    files = {"etc/k0s/containerd.toml": toml(2), "etc/k0s/containerd.d/a.toml": OF_1}
    assert () == read(node, files).unread


def process(node: Node, number: int, *words: str, namespace: int = 1, user: int = 0) -> None:
    files = {
        "comm": "containerd\n",
        "cmdline": "\0".join(words),
        "status": f"Name:\tcontainerd\nUid:\t{user}\t0\t0\t0\n",
    }
    write(node, {f"proc/{number}/{name}": text for name, text in files.items()})
    node.at(f"proc/{number}/ns").mkdir()
    node.at(f"proc/{number}/ns/mnt").symlink_to(f"mnt:[{namespace}]")


def test_the_file_with_which_containerd_was_started_is_read(node: Node) -> None:
    write(node, {MAIN: toml(3, default="runc"), "srv/c.toml": NVIDIA, "srv/docker/c.toml": ""})
    process(node, 6, "containerd")
    process(node, 7, "containerd", "--config", "/srv/docker/c.toml")
    process(node, 9, "containerd", "--config=/srv/c.toml", "-a", "/run/c.sock", namespace=2)
    assert "nvidia" == runtime_config(node).default, "nothing is known of init"
    process(node, 1, "systemd", namespace=1)
    process(node, 10, "containerd", "--config", "/srv/c.toml", user=1000)
    assert "runc" == runtime_config(node).default, "9 is in a container, and 10 is a user's"
    process(node, 8, "containerd", "-c", "/srv/c.toml", "-a", "/run/c.sock")
    assert "nvidia" == runtime_config(node).default
    node.at("proc/8/cmdline").write_text(f"containerd\0-c\0/{LONG}\0")
    assert "File name too long" in runtime_config(node).faults[0]


# By its own word.

ABSENT = of_containerd()
SAYS_NO = {**of_containerd(), "enableCDI": False, "cdiSpecDirs": ["/srv/cdi"]}


@pytest.mark.parametrize(
    ("version", "document", "cdi", "directories"),
    [
        ("v2.1.4-k3s1", {**ABSENT, "enableCDI": None}, True, ()),
        ("v1.7.27", SAYS_NO, False, ("/srv/cdi",)),
        ("1.6.20~ds1", ABSENT, False, ()),
        ("odd", ABSENT, False, ()),
    ],
)
def test_containerd_is_asked_and_its_word_counts(
    node: Node, version: str, document: object, directories: tuple[str, ...], *, cdi: bool
) -> None:
    with containerd(node.at(SOCKET), config(document), version):
        found = runtime_config(node)
    assert f"containerd {version} at /{SOCKET}" == found.source
    assert ("nvidia", cdi, directories) == (found.default, found.cdi, found.cdi_dirs)
    assert {"nvidia": True, "runc": False} == found.systemd
    assert () == (*found.files, *found.findings())


def test_files_that_were_edited_after_the_start_are_named(node: Node) -> None:
    given = {"BinaryName": "'/bin/x'", "SystemdCgroup": "false"}
    other = f'[plugins."{NEW}".containerd.runtimes.new.options]\n'
    cri = f'[plugins."{NEW}"]\nenable_cdi = false\ncdi_spec_dirs = ["/srv"]\n'
    write(node, {MAIN: toml(3, default="runc", **given) + other + cri})
    with containerd(node.at(SOCKET), config(of_containerd())):
        assert [
            "runtimes: new, nvidia in the files, and nvidia in the runtime",
            "default runtime: runc in the files, and nvidia in the runtime",
            "CDI: off in the files, and on in the runtime",
            "directories of CDI: /srv in the files, and not set in the runtime",
            f"program of nvidia: /bin/x in the files, and {PROGRAM} in the runtime",
            "systemd of nvidia: false in the files, and true in the runtime",
        ] == [*runtime_config(node).differences]
        assert all("restart" in one.do for one in runtime_config(node).findings())
        write(node, {MAIN: toml(3)})
        assert ["runtimes: none in the files, and nvidia in the runtime"] == [
            *runtime_config(node).differences
        ]
        write(
            node, {MAIN: toml(3, default="nvidia", BinaryName=repr(PROGRAM), SystemdCgroup="true")}
        )
        assert () == runtime_config(node).differences
        write(node, {MAIN: "version = ["})
        found = runtime_config(node)
        assert ("nvidia", (), True) == (found.default, found.differences, found.is_complete)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (None, "UNIMPLEMENTED"),
        (HANGS, "DEADLINE_EXCEEDED"),
        (b"\xff", "answers what is not a message"),
        (config("{"), "has no configuration that can be read"),
        (config("[" * 100_000), "has no configuration that can be read"),
        (config("[]"), "has no configuration of runtimes"),
        (config(" " * (5 << 20)), "RESOURCE_EXHAUSTED"),
        (b"", "has no configuration that can be read"),
    ],
)
def test_files_are_read_where_a_runtime_does_not_say_it(
    node: Node, status: bytes | None, why: str
) -> None:
    write(node, {MAIN: NVIDIA})
    node = replace(node, timeout=0.5 if status == HANGS else 20)
    with containerd(node.at(SOCKET), status):
        found = runtime_config(node)
        (line,) = says(node, Verdict.UNKNOWN)
    assert "nvidia" == found.default
    assert why in found.silent[0]
    assert f"container runtime: does not say its configuration: /{SOCKET}: " in line


def test_an_answer_with_thousands_of_runtimes_is_read_in_one_go(node: Node) -> None:
    runtimes = {f"r{n}": {"options": {"BinaryName": "/bin/x"}} for n in range(20_000)}
    document = {"containerd": {"runtimes": runtimes, "defaultRuntimeName": "r1"}}
    with containerd(node.at(SOCKET), config(document)):
        assert 20_000 == len(runtime_config(node).programs)


GIVES = "device_ownership_from_security_context"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({MAIN: f'version = 3\n[plugins."{NEW}"]\n{GIVES} = true\n'}, True),
        ({MAIN: f'version = 2\n[plugins."{OLD}"]\n{GIVES} = true\n'}, True),
        ({MAIN: f'version = 3\n[plugins."{NEW}"]\n{GIVES} = "true"\n'}, None),
        ({MAIN: toml(3)}, None),
        (
            {
                "etc/crio/crio.conf": f"[crio.runtime]\n{GIVES} = true\n",
                "etc/crio/crio.conf.d/a": f"[crio.runtime]\n{GIVES} = false\n",
            },
            False,
        ),
    ],
)
def test_it_is_read_whether_a_pods_user_owns_its_device_nodes(
    node: Node, files: Mapping[str, str], expected: bool | None
) -> None:
    assert expected is read(node, files).gives_devices


def test_it_is_asked_whether_a_pods_user_owns_its_device_nodes(node: Node) -> None:
    write(node, {MAIN: f'version = 3\n[plugins."{NEW}"]\n{GIVES} = true\n'})
    for said, more in ((True, []), (False, [f"{GIVES}: on in the files, and off in the runtime"])):
        with containerd(node.at(SOCKET), config({**of_containerd(), GIVES: said})):
            found = runtime_config(node)
        assert said is found.gives_devices
        assert more == [one for one in found.differences if GIVES in one]


CRIO = f"""[crio.runtime]
default_runtime = "nvidia"
[crio.runtime.runtimes.nvidia]
runtime_path = "{PROGRAM}"
"""


@pytest.mark.parametrize(
    ("http", "why"),
    [
        (HTTP + CRIO.encode(), ""),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "answers 'HTTP/1.0 404 Not Found' for /config"),
        (HTTP + b"a = [", "CRI-O has no configuration that can be read"),
        (HTTP + HANGS, "timed out"),
        (HTTP + b" " * (5 << 20), "does not end its answer"),
    ],
)
def test_crio_is_asked_for_its_configuration(node: Node, http: bytes, why: str) -> None:
    write(node, {"etc/crio/crio.conf.d/a": CRIO.replace("nvidia", "runc"), MAIN: toml(default="x")})
    node = replace(node, timeout=1.0 if http.endswith(HANGS) else 20)
    with crio(node.at("run/crio/crio.sock"), http):
        found = runtime_config(node)
    assert ("runc" if why else "nvidia") == found.default
    if why:
        assert why in found.silent[0]
    else:
        assert "CRI-O at /run/crio/crio.sock" == found.asked
        assert (True, {"nvidia": True}) == (found.cdi, found.systemd)
        assert "default runtime: runc in the files, and nvidia in the runtime" in found.differences


@pytest.mark.parametrize(
    "files",
    [
        {"proc/7/comm": "kubelet\n",
         "proc/7/cmdline": "kubelet\0--container-runtime-endpoint=unix:///run/crio/crio.sock\0"},
        {"var/lib/kubelet/kubeadm-flags.env":
         'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///var/run/crio/crio.sock"'},
        {"var/lib/kubelet/config.yaml":
         'containerRuntimeEndpoint: "unix:///run/crio/crio.sock"\n'},
    ],
)  # fmt: skip
def test_the_runtime_of_the_kubelet_is_asked_first(node: Node, files: Mapping[str, str]) -> None:
    write(node, files)
    with (
        containerd(node.at(SOCKET), config(of_containerd("x"))),
        crio(node.at("run/crio/crio.sock"), HTTP + CRIO.encode()),
    ):
        assert "nvidia" == runtime_config(node).default


def test_where_the_kubelet_uses_docker_nobody_is_asked(node: Node) -> None:
    docker = '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "/usr/bin/nvidia"}}}'
    write(node, {"etc/docker/daemon.json": docker, "run/cri-dockerd.sock": "", MAIN: toml(3)})
    with containerd(node.at(SOCKET), config(of_containerd("runc"))):
        found = runtime_config(node)
    assert ("nvidia", {"nvidia": "/usr/bin/nvidia"}) == (found.default, found.programs)
    node.at("etc/docker/daemon.json").unlink()
    assert "" == runtime_config(node).default


SEARCH = 'unqualified-search-registries = ["docker.io"]\n'
REGISTRIES = "etc/containers/registries.conf"
IS_CRIO = {"etc/crio/crio.conf.d/a": CRIO}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ["ok: is not visible here, nor whether it is CRI-O"]),
        ({MAIN: NVIDIA}, ["ok: is not CRI-O"]),
        ({MAIN: NVIDIA, **IS_CRIO}, ["unknown: there are files of containerd, and of CRI-O"]),
        ({**IS_CRIO, "run/containerd/containerd.sock": ""}, ["unknown: there are files"]),
        ({MAIN: NVIDIA, "run/crio/crio.sock": ""}, ["unknown: there are files of containerd"]),
        ({"run/crio/crio.sock": ""}, ["unknown: ", "unknown: ", "warning: /etc/c", "ok: starts"]),
        ({"run/cri-dockerd.sock": "", MAIN: NVIDIA, **IS_CRIO}, ["ok: is not CRI-O"]),
        (
            {MAIN: NVIDIA, **IS_CRIO, "var/lib/kubelet/config.yaml":
             "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock"},
            ["ok: is not CRI-O"],
        ),
        (IS_CRIO, ["warning: /etc/containers/registries.conf does not have any", "ok: starts"]),
        ({**IS_CRIO, REGISTRIES: SEARCH}, ["ok: looks for images without", "ok: starts"]),
        (
            {**IS_CRIO, f"{REGISTRIES}.d/1.conf": SEARCH, f"{REGISTRIES}.d/2.conf": "x = 1"},
            ["ok: looks for images without a registry in docker.io", "ok: starts"],
        ),
        (
            {**IS_CRIO, REGISTRIES: SEARCH.replace("[", '["quay.io", ')},
            ["warning: /etc/containers/registries.conf names 2 unqualified", "ok: starts"],
        ),
        (
            {**IS_CRIO, REGISTRIES: SEARCH, f"{REGISTRIES}.d/1.conf": "x = ["},
            ["warning: ", "ok: looks for", "ok: starts"],
        ),
        (
            {"etc/crio/crio.conf": "", "var/lib/kubelet/config.yaml": "containerRuntimeEndpoint: "
             "unix:///run/crio/crio.sock", MAIN: NVIDIA, REGISTRIES: SEARCH},
            ["ok: looks for", "ok: starts"],
        ),
    ],
)  # fmt: skip
def test_what_crio_does_with_a_short_name_is_said(
    node: Node, files: Mapping[str, str], expected: list[str]
) -> None:
    write(node, files)
    found = [f"{one.verdict}: {one.found}" for one in _machine.runtime(node)]
    assert len(expected) == len(found), found
    assert all(map(str.startswith, found, expected)), found


def test_a_crio_that_answers_is_known(node: Node) -> None:
    write(node, {MAIN: NVIDIA})
    node.at("run/crio").mkdir(parents=True)
    with crio(node.at("run/crio/crio.sock"), HTTP + CRIO.encode()):
        assert () == runtime_config(node).search
