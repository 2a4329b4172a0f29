"""The mode by an annotation of the node, read once from the API server."""

import logging
import os
import threading
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from deviceplugin_fpga.settings import MODES, FpgaSettings, Mode

log = logging.getLogger(__name__)

NAME: Final = "fpga.intel.com/device-plugin-mode"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory of the pod's service account."""
_LONGEST: Final = 4 * 1024**2
"""The most bytes of an answer. Nodes are far smaller."""
PATIENCE: Final = 5.0
"""Seconds for the whole request, including name resolution."""
_MOST_SHOWN: Final = 80
"""Characters of an annotation that are logged. The API server allows 256 KiB."""
_PAUSE: Final = 0.2
"""Seconds between attempts while there is no answer."""


def mode(settings: FpgaSettings, *, account: Path = ACCOUNT, patience: float = PATIENCE) -> Mode:
    """Return the mode: the annotation's if it is enabled, otherwise that of the settings.

    Any failure is logged as a warning, and the mode of the settings applies.
    """
    if not settings.node_annotation:
        return settings.mode
    answer: list[str] = []
    problem = f"no answer within {patience:g} s"

    def ask() -> None:
        nonlocal problem
        try:
            answer.append(_answered(settings, account, patience))
        except Exception as error:  # the top of a thread
            if not isinstance(getattr(error, "reason", error), TimeoutError):
                problem = str(error) or type(error).__name__

    thread = threading.Thread(target=ask, name="annotation", daemon=True)
    thread.start()
    thread.join(patience)
    if answer:
        (text,) = answer
        if text in MODES:
            log.info("mode set by node annotation", extra={"mode": text})
            return MODES[text]
        if not text:
            return settings.mode
        problem = f"{text[:_MOST_SHOWN]!r} is not one of {', '.join(MODES)}"
    log.warning(
        "invalid annotation ignored",
        extra={"annotation": NAME, "error": problem, "mode": settings.mode},
    )
    return settings.mode


def _answered(settings: FpgaSettings, account: Path, patience: float) -> str:
    """Return the annotation's value. Retry while there is no answer: the network may be down."""
    from urllib.error import HTTPError, URLError

    end = monotonic() + patience
    while True:
        try:
            return _annotation(settings, account, patience)
        except HTTPError:
            raise
        except (URLError, ConnectionError, TimeoutError):
            if monotonic() + _PAUSE > end:
                raise
        sleep(_PAUSE)


def _annotation(settings: FpgaSettings, account: Path, patience: float) -> str:
    """Return the annotation's value; empty if the node has none."""
    # Imported late: TLS takes memory that most plugins never need.
    import json
    import ssl
    from urllib.parse import quote
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """Refuses redirects: the token is for the API server only."""

        def redirect_request(self, *_: object) -> None:
            return None

    url = f"{settings.api_server or _in_cluster()}/api/v1/nodes/{quote(settings.node_name, '')}"
    token = (account / "token").read_text(encoding="ascii").strip()
    request = Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - set by the operator
    certificates = account / "ca.crt"
    trust = ssl.create_default_context(cafile=certificates) if certificates.exists() else None
    with build_opener(Stay, HTTPSHandler(context=trust)).open(
        request, timeout=patience
    ) as response:
        text = response.read(_LONGEST)
    return str((json.loads(text)["metadata"].get("annotations") or {}).get(NAME, ""))


def _in_cluster() -> str:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"
