"""Certificates for servers and clients on this machine, by openssl."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


def make(place: Path, name: str = "IP:127.0.0.1") -> tuple[str, str]:
    """Return a certificate for ``name``, which is its own authority, and its key."""
    place.mkdir(exist_ok=True)
    words = (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kube"
    )
    made = ["-keyout", "key.pem", "-out", "ca.crt", "-addext", f"subjectAltName={name}"]
    subprocess.run(["openssl", *words.split(), *made], cwd=place, check=True, capture_output=True)
    return (place / "ca.crt").read_text(), (place / "key.pem").read_text()


def certificate(place: Path, name: str = "IP:127.0.0.1") -> tuple[ssl.SSLContext, str]:
    """Return what a server needs, and the authority by which it is known."""
    authority, _ = make(place, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "ca.crt", place / "key.pem")
    return context, authority
