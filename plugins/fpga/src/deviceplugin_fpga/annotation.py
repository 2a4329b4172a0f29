"""The mode by an annotation of the node, read once from the API server."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from deviceplugin_fpga.settings import MODES, FpgaSettings, Mode

log = logging.getLogger(__name__)

NAME: Final = "fpga.intel.com/device-plugin-mode"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory of the pod's service account, which the client of the API server has, too."""
PATIENCE: Final = 5.0
"""Seconds for the whole request, including name resolution."""
_MOST_SHOWN: Final = 80
"""Characters of an annotation that are logged. The API server allows 256 KiB."""
_PAUSE: Final = 0.2
"""Least seconds between attempts while there is no answer."""


def mode(settings: FpgaSettings, *, account: Path = ACCOUNT, patience: float = PATIENCE) -> Mode:
    """Return the mode: the annotation's if it is enabled, otherwise that of the settings.

    Any failure is logged as a warning, and the mode of the settings applies.
    """
    if not settings.node_annotation:
        return settings.mode
    answer: list[str] = []
    problem = f"no answer within {patience:g} s"

    def failed(error: Exception) -> None:
        nonlocal problem
        problem = str(error) or type(error).__name__

    def ask() -> None:
        try:
            answer.append(_annotation(settings, account, patience, failed))
        except Exception as error:  # the top of a thread
            failed(error)

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


def _annotation(
    settings: FpgaSettings, account: Path, patience: float, failed: Callable[[Exception], None]
) -> str:
    """Return the annotation's value; empty if the node has none.

    It is asked for again while there is no answer, because the network may be down at the start of
    a node. ``failed`` is told each time.
    """
    # Imported late: TLS takes memory that most plugins never need.
    from deviceplugin.apiserver import Account, ApiServer, UnavailableError

    options: dict[str, Any] = {"account": Account(account), "timeout": 2 * patience}
    url, end = settings.api_server, monotonic() + patience
    api = ApiServer(url, **options) if url else ApiServer.of_pod(**options)
    while True:
        try:
            node = api.get(f"/api/v1/nodes/{settings.node_name}")
        except UnavailableError as error:
            failed(error)
            pause = max(_PAUSE, error.after)
            if monotonic() + pause > end:
                raise
            sleep(pause)
        else:
            metadata = node.get("metadata")
            found = metadata.get("annotations") if isinstance(metadata, dict) else None
            return str(found.get(NAME, "")) if isinstance(found, dict) else ""
