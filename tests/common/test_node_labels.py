"""``deviceplugin node-labels``, and plugins that choose their configuration by what it writes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.scripted_api import Answer, Asked, Script, running
from deviceplugin.kit.files import write
from deviceplugin.tools.node_labels._cli import main
from deviceplugin_testing.fixture import Kubelet
from patience import PATIENCE, eventually
from plugin_process import started

LABEL = "example.com/gophers"
RESOURCE = "example.com/gopher"


class Cluster(Script):
    """A node with labels, or an API server that is away."""

    def __init__(self) -> None:
        super().__init__(otherwise=self._node)
        self.labels: dict[str, str] | None = {}
        self.problem: Answer | None = None

    def _node(self, asked: Asked) -> Answer:
        assert ("/api/v1/nodes/n1", {"resourceVersion": "0"}) == (asked.path, asked.query)
        return self.problem or Answer.of({"metadata": {"name": "n1", "labels": self.labels}})


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running(Cluster()) as script:
        yield script


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run/labels"


def once(cluster: Cluster, file: Path) -> int:
    return main(["--node=n1", f"--file={file}", "--once", f"--api={cluster.url}"])


def test_labels_are_written_as_the_downward_api_does(cluster: Cluster, file: Path) -> None:
    cluster.labels = {"pool": "a", "a.b/c": ""}
    assert 0 == once(cluster, file)
    assert 'a.b/c=""\npool="a"\n' == file.read_text()
    cluster.labels = None
    assert 0 == once(cluster, file)
    assert "" == file.read_text()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(403, "no rights"), "no rights; deployments/components/node-labels has the right"),
        (Answer(404, "no node"), "no node"),
        (Answer.of([]), "not an object"),
        (Answer.of({"metadata": 1}), "node 'n1': the answer is not this node"),
        (Answer.of({"metadata": {}, "items": []}), "node 'n1': the answer is not this node"),
        (Answer(raw=b""), "127.0.0.1"),
    ],
)
def test_what_cannot_be_read_leaves_the_file_as_it_is(
    cluster: Cluster,
    file: Path,
    answer: Answer,
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster.labels = {"pool": "a"}
    assert 0 == once(cluster, file)
    cluster.problem = answer
    assert 1 == once(cluster, file)
    assert 'pool="a"\n' == file.read_text()
    *_, record = map(json.loads, capsys.readouterr().err.splitlines())
    assert "node labels not written" == record["event"]
    assert expected in record["error"]


def test_a_file_that_cannot_be_written_is_named(
    cluster: Cluster, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.parent.touch()
    assert 1 == once(cluster, file)
    assert str(file.parent) in json.loads(capsys.readouterr().err)["error"]


def test_a_wrong_command_line_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for words, expected in (
        (["--node=n1"], "--file"),
        (["--node=n1", "--file=x"], "this is not a pod"),
        (["--node=n1", "--file=x", "--interval=10ms"], "'10ms' is not between 1s and 1h"),
    ):
        assert 2 == main(words)
        assert expected in capsys.readouterr().err


@contextmanager
def beside(cluster: Cluster, file: Path) -> Iterator[None]:
    """Run the command beside a plugin, and stop it as Kubernetes does."""
    words = ["--node=n1", f"--file={file}", "--interval=1s", f"--api={cluster.url}"]
    command = [sys.executable, "-m", "deviceplugin", "node-labels", *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(PATIENCE)
        finally:
            process.kill()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return a file for nodes whose label names few or many gophers; others have one."""
    for name, number in (("one", 1), ("few", 2), ("many", 3)):
        (tmp_path / name).mkdir()
        for gopher in range(number):
            (tmp_path / name / f"{name}{gopher}").touch()
    path = tmp_path / "gopher.yaml"
    path.write_text(
        f"directory: {tmp_path}/one\nnodes:\n"
        f"- {{name: few, directory: {tmp_path}/few}}\n"
        f"- {{name: many, directory: {tmp_path}/many}}\n"
    )
    return path


def words(config: Path, file: Path, wait: str) -> list[str]:
    label = f"--node-label={LABEL}"
    return [f"--config={config}", f"--node-labels-file={file}", label, f"--node-labels-wait={wait}"]


FEW, MANY = {"few0", "few1"}, {"many0", "many1", "many2"}


@pytest.mark.slow
def test_the_label_of_the_node_chooses_at_the_start_and_whenever_it_changes(
    kubelet: Kubelet, cluster: Cluster, config: Path, file: Path
) -> None:
    cluster.labels = {LABEL: "few"}
    listed = kubelet.simulated
    with (
        started(listed.plugin_dir, *words(config, file, f"{PATIENCE:g}s")) as process,
        beside(cluster, file),  # a moment later than the plugin, which waits for it
    ):
        listed.wait_for(RESOURCE, FEW)
        cluster.labels = {LABEL: "many"}
        process.wait_for("configuration reloaded")
        listed.wait_for(RESOURCE, MANY, FEW)
        cluster.labels = {LABEL: "mony"}
        problem = process.wait_for("invalid configuration ignored")["error"]
        expected = (
            f"label {LABEL} of the node names 'mony', which is not there: did you mean 'many'?"
        )
        assert expected in problem
        cluster.problem = Answer(503, "away")
        eventually(lambda: len(cluster.asked) > 4)
        assert {*MANY, *FEW} == {*listed.devices(RESOURCE)}
        cluster.problem, cluster.labels = None, {"other": "label"}
        process.wait_for("configuration reloaded")
        listed.wait_for(RESOURCE, {"one0"}, {*FEW, *MANY})
        assert 0 == process.stop()


def test_labels_that_come_late_are_taken(kubelet: Kubelet, config: Path, file: Path) -> None:
    listed = kubelet.simulated
    with started(listed.plugin_dir, *words(config, file, "1ms")) as process:
        assert str(file) == process.wait_for("node labels missing")["file"]
        listed.wait_for(RESOURCE, {"one0"})
        write(file, f'{LABEL}="few"\n')
        process.wait_for("configuration reloaded")
        listed.wait_for(RESOURCE, FEW, {"one0"})
        assert 0 == process.stop()
