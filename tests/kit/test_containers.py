"""Which container a process is in, whatever a container says of itself."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from deviceplugin.kit.containers import Container, Processes
from node_processes import NESTED, NodeProcesses, number, scope, uid

TRAIN = Container("ml", "train-0", "main")
NOW = 1000.0
A, B = number(0xA), number(0xB)
"""The containers of the pods 1 (ml/train-0) and 2 (ml/other)."""
P, Q = uid(1), uid(2)
P_, Q_ = P.replace("-", "_"), Q.replace("-", "_")
OWN = (
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid(9)}.slice/crio-{A}.scope"
)
DOCKER = f"/docker/{number(7)}/kubelet/kubepods"
BEST = "-kubepods-besteffort"
KIND = "/kubelet.slice/kubelet-kubepods.slice"


@pytest.fixture
def node(tmp_path: Path) -> NodeProcesses:
    node = NodeProcesses(tmp_path / "proc", tmp_path / "logs")
    node.link("ml/train-0/main", 1, 0xA)
    node.link("ml/other/main", 2, 0xB)
    return node


def processes(node: NodeProcesses, now: float = NOW) -> Processes:
    return Processes(node.proc, node.logs, lambda: now)


def container(node: NodeProcesses, own: str, *paths: str) -> Container | None:
    """Return that of a process in these control groups, as one in ``own`` sees it."""
    node.see(own)
    node.add(7, *paths)
    return processes(node).find([7], NOW)[7].container


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ("/", f"/../../../{BEST[1:]}.slice/{BEST[1:]}-pod{P_}.slice/crio-{A}.scope"),
        ("/", f"/../../kubepods-burstable-pod{P_}.slice/cri-containerd-{A}.scope"),
        ("/", f"/../../../kubepods-pod{P_}.slice/docker-{A}.scope"),
        ("/", f"/../../../burstable/pod{P}/{A}"),
        ("/", f"/../../pod{P}/crio-{A}"),
        ("/", f"/../cri-containerd-{A}.scope"),
        ("/", f"/../{A}"),
        ("/", f"/../kubepods-besteffort-pod{P_}.slice:cri-containerd:{A}"),
        ("/", f"/../../../../kubepods-pod{P_}.slice/crio-{A}.scope/container"),
        ("/", f"/../../../kubelet{BEST}.slice/kubelet{BEST}-pod{P_}.slice/crio-{A}.scope"),
        ("/", f"/../../../on\\x2dA{BEST}.slice/on\\x2dA{BEST}-pod{P_}.slice/{A}"),
        ("/system.slice/ours.service", scope(1, 0xA)),
        ("/system.slice/ours.service", f"/kubepods/besteffort/pod{P}/{A}"),
        ("/system.slice/ours.service", f"/kubepods/pod{P}/{A}/made/below"),
        ("/system.slice/ours.service", f"{KIND}/kubelet-kubepods-pod{P_}.slice/crio-{A}.scope"),
        ("/system.slice/ours.service",
         f"/system.slice/containerd.service/kubepods-pod{P_}.slice:cri-containerd:{A}"),
        (OWN, f"/kubepods.slice/kubepods-pod{P_}.slice/crio-{A}.scope/container"),
        (f"{DOCKER}/besteffort/pod{uid(9)}/{number(9)}", f"{DOCKER}/pod{P}/{A}"),
        (f"/site/kubepods/pod{uid(9)}/{number(9)}", f"/site/kubepods/burstable/pod{P}/{A}"),
    ],
)  # fmt: skip
def test_a_process_is_in_its_container_whatever_the_runtime_and_the_driver(
    node: NodeProcesses, own: str, path: str
) -> None:
    assert TRAIN == container(node, own, path)


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ("/", f"/../../../pod{Q}/{B}/kubepods/pod{P}/{A}"),
        (OWN, f"/kubepods.slice/kubepods-pod{Q_}.slice/crio-{B}.scope{scope(1, 0xA)}"),
    ],
)
def test_a_container_that_makes_groups_named_after_another_pod_stays_itself(
    node: NodeProcesses, own: str, path: str
) -> None:
    assert Container("ml", "other", "main") == container(node, own, path)


@pytest.mark.parametrize(
    ("own", "paths"),
    [
        ("/", ["/../../../../system.slice/sshd.service"]),
        ("/", [f"/../../../../user.slice/user-1000.slice/kubepods/pod{P}/{A}"]),
        ("/", [f"/../../../../../pod{P}/{A}"]),
        ("/", [f"/../../../other/pod{P}/{A}"]),
        ("/system.slice/ours.service", [f"/user.slice/user-1000.slice/kubepods/pod{P}/{A}"]),
        ("/system.slice/ours.service", [f"/docker/{number(7)}/kubelet/kubepods/pod{P}/{A}"]),
        ("/system.slice/ours.service", [f"/machine.slice{scope(1, 0xA)}"]),
        (OWN, [f"/kubepods/pod{P}/{A}"]),
        ("/", [f"/../../../pod{P}/{A[:-1]}"]),
        ("/", [f"/../../../pod{P}/{A}0"]),
        ("/", [f"/../../../pod{P}/{A} (deleted)"]),
        ("/", [f"/../../../pod{P}x/{A}"]),
        ("/", [f"/../../../pod{P}/{A}", f"/../../../pod{Q}/{B}"]),
        ("/", [f"/../../../pod{Q}/{A}"]),
        ("/", [f"/../../../pod{P}/{number(0xC)}"]),
        ("/", [f"/../../../pod{P}/crio-conmon-{A}.scope"]),
        ("/", [""]),
        ("/", []),
    ],
)  # fmt: skip
def test_what_is_not_certainly_a_container_of_a_pod_is_in_none(
    node: NodeProcesses, own: str, paths: list[str]
) -> None:
    assert container(node, own, *paths) is None


def test_hierarchies_without_pods_do_not_count(node: NodeProcesses) -> None:
    node.see("/user.slice", f"/kubepods/pod{uid(9)}/{number(9)}", "/")
    node.add(7, "/", f"/kubepods/pod{P}/{A}", f"/kubepods/pod{P}/{A}", "/system.slice")
    assert TRAIN == processes(node).find([7], NOW)[7].container


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("train-0_ml_main.log", f"ml_train-0_{P}/main/0.log"),
        (f"train-0_ml_main-{A}", f"ml_train-0_{P}/main/0.log"),
        (f"train-0_ml_main-{A}.log", "0.log"),
        (f"train-0_ml_main-{A}.log", f"train-0_{P}/main/0.log"),
        (f"train-0_ml_main-{A}.log", f"ML_train-0_{P}/main/0.log"),
        (f"train-0_ml_main-{A}.log", f"ml_train-0_{P}/0.log"),
    ],
)
def test_other_links_say_nothing(node: NodeProcesses, name: str, target: str) -> None:
    for link in node.logs.iterdir():
        link.unlink()
    (node.logs / name).symlink_to(f"/var/log/pods/{target}")
    assert container(node, "/", f"/../../../pod{P}/{A}") is None


def test_names_that_are_too_long_for_a_link_are_known_all_the_same(node: NodeProcesses) -> None:
    pod, ids = "a" * 170, (0xA << 240, 0xB << 240)
    for name, each in zip(("x" * 58, "y" * 58), ids, strict=True):
        assert 255 == len(node.link(f"ml/{pod}/{name}", 3, each).name)
    node.add(7, f"/../../../pod{uid(3)}/{number(ids[0])}")
    node.add(8, f"/../../../pod{uid(3)}/{number(ids[1])}")
    node.add(9, f"/../../../pod{uid(3)}/{number(0xC << 240)}")
    node.add(10, f"/../../../pod{P}/{number(ids[0])}")
    found = processes(node).find(range(7, 11), NOW)
    named = [Container("ml", pod, "x" * 58), Container("ml", pod, "y" * 58)]
    assert [*named, None, None] == [one.container for one in found.values()]


@pytest.mark.parametrize("started", [NOW, NOW - 0.005, NOW + 5])
def test_a_process_that_started_after_its_id_was_learned_is_another(
    node: NodeProcesses, started: float
) -> None:
    node.add(7, f"/../../../pod{P}/{A}", started=started)
    node.add(8, f"/../../../pod{P}/{A}", started=NOW - 1)
    assert {8: (NOW - 1, TRAIN)} == processes(node).find([7, 8, 9], NOW)


def test_an_id_that_is_given_again_meanwhile_is_of_nobody(node: NodeProcesses) -> None:
    node.add(7, "", started=1)
    group = node.proc / "7/cgroup"
    group.unlink()
    os.mkfifo(group)

    def end_and_start() -> None:
        with group.open("w") as file:  # while it is read
            node.start(7, 2)
            file.write(f"0::/../../../pod{P}/{A}\n")

    other = threading.Thread(target=end_and_start)
    other.start()
    assert {} == processes(node).find([7], NOW)
    other.join()


def test_one_that_ended_or_may_not_be_read_takes_nobody_else_along(node: NodeProcesses) -> None:
    node.add(7, f"/../../../pod{P}/{A}")
    node.add(8, "/").write_text("8 (a")
    node.add(9, "/").unlink()
    (node.proc / "9/stat").symlink_to("/proc/sys/vm/compact_memory")  # nobody may read it
    node.add(10, f"/../../../pod{P}/{A}")
    (node.proc / "10/cgroup").unlink()
    node.add(11, f"/../../../pod{Q}/{B}").write_text("x" * 10**6)
    assert {7: (1.0, TRAIN), 9: (NOW, None)} == processes(node).find(range(7, 12), NOW)


def test_what_cannot_be_read_is_not_taken_for_a_process_that_has_ended(node: NodeProcesses) -> None:
    group = node.add(7, "/").with_name("cgroup")
    group.unlink()
    group.symlink_to(group)
    with pytest.raises(OSError, match="Too many levels"):
        processes(node).find([7], NOW)


@pytest.mark.parametrize(
    ("own", "first", "namespace", "visible"),
    [
        ("/", "/../../../../init.scope", NESTED, True),  # a node that is a container
        ("/", "/", "pid:[4026531836]", True),  # no systemd
        ("/", "/", NESTED, False),
        ("/", f"/../cri-containerd-{B}.scope", NESTED, False),  # shareProcessNamespace
        (OWN, OWN, NESTED, False),
    ],
)
def test_without_the_hosts_processes_there_is_a_problem(
    node: NodeProcesses, own: str, first: str, namespace: str, *, visible: bool
) -> None:
    node.see(own, first=first, namespace=namespace)
    expected = "processes of other pods are not visible: the pod needs hostPID: true"
    assert ("" if visible else expected) == processes(node).problem()


def test_a_real_process_started_when_it_did_and_is_gone_when_it_ended(node: NodeProcesses) -> None:
    real = Processes(Path("/proc"), node.logs)
    earlier = real.now()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        later = real.now() + 1
        found = real.find([child.pid], later)[child.pid]
        assert earlier - 0.01 <= found.started <= later
        assert found.container is None
        assert {} == real.find([child.pid], earlier)
    assert {} == real.find([child.pid], later)


def test_a_directory_without_links_is_a_problem_and_none_is_an_error(node: NodeProcesses) -> None:
    for link in node.logs.iterdir():
        link.unlink()
    why = "the kubelet has no links to logs of containers there"
    assert f"{node.logs}: {why}" == processes(node).problem()
    node.logs.rmdir()
    with pytest.raises(FileNotFoundError, match="logs"):
        processes(node).problem()
