"""The operator as a process, with the rights of its deployment, on a real API server."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from operators.fleet_cluster import SPACE
from operators.real_fleet import ROOT, RealFleet

_OPERATOR = """
mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io &&
ln -s "$0" /run/secrets/kubernetes.io/serviceaccount && exec "$@"
"""


@dataclass
class Operator:
    """The process; the files of its account are where pods have them."""

    fleet: RealFleet
    code: Path = ROOT / "operator/src"
    """Where its package is."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> Path:
        """The file for its probe."""
        return self.fleet.server.root / "alive"

    def start(self) -> None:
        """Start it, with a new token."""
        admin = self.fleet.server.admin
        path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/deviceplugin-operator/token"
        token = admin.create(path, {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        account = self.fleet.server.account("operator", token)
        words = ["unshare", "--mount", "sh", "-c", _OPERATOR, str(account), sys.executable]
        words += ["-m", "deviceplugin_operator", "run", "--namespace", SPACE]
        words += ["--api-server", self.fleet.server.url, "--alive", str(self.alive)]
        environment = {**os.environ, "PYTHONPATH": str(self.code)}
        with (self.fleet.server.root / "operator.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, env=environment)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.process:
            self.process.send_signal(how)
            self.process.wait(30)
            self.process = None

    def memory(self, what: str = "VmRSS") -> float:
        """Return resident memory in MiB; the highest so far with ``VmHWM``."""
        assert self.process
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition(f"{what}:")[2].split()[0]) / 1024

    def cpu(self) -> float:
        """Return the seconds of CPU that it has used."""
        assert self.process
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
