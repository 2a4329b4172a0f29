"""Runs kopf, which watches objects and passes events to the controller.

Only ``on.event`` is used. Other handlers of kopf put finalizers and annotations on users' objects,
and an object with a finalizer cannot be deleted while the operator is away.
"""

import asyncio
import logging
from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import kopf

import deviceplugin as dp
from deviceplugin.apiserver import SERVICE_ACCOUNT
from deviceplugin_operator import names
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.liveness import EVERY, Sign
from deviceplugin_operator.observed import CONFIG_MAPS, DAEMON_SETS, OWNERS

_SERVER_TIMEOUT: Final = 300
"""Whole seconds after which the API server ends a watch, and it is begun anew."""
_MOST_WAIT: Final = 5.0
"""Most seconds between attempts while the API server is away."""
_CLIENT_TIMEOUT: Final = 330.0
"""Seconds after which the client ends a watch, in case the connection is dead."""

_NO_KIND: Final = (
    f"the API server does not know the kind {names.KIND}: kubectl apply -k deployments/operator/crd"
)


def run(
    controller: Controller,
    namespace: str,
    server: str,
    *,
    alive: Path | None = None,
    stop: Any = None,
) -> None:
    """Watch, and run ``controller``, until SIGTERM or SIGINT, or ``stop`` is set: an event."""
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)
    try:
        sign = Sign(alive, controller.problem) if alive else None
    except OSError as error:
        raise dp.ConfigError(f"--alive {alive}: {error.strerror}") from error
    if not controller.knows_kind():
        raise dp.ConfigError(_NO_KIND)
    controller.start()
    try:
        kopf.run(
            registry=registry(controller, server, sign),
            settings=_settings(),
            standalone=True,
            namespaces=[namespace],
            stop_flag=stop,
        )
    except Exception as error:
        if _is_not_found(error):
            raise dp.ConfigError(_NO_KIND) from error
        raise
    finally:
        controller.stop()


def _is_news(record: logging.LogRecord) -> bool:
    """Drop each attempt while the API server is away, and tracebacks when the kind is deleted."""
    deleted = record.exc_info and _is_not_found(record.exc_info[1])
    return not deleted and not str(record.msg).startswith("Request attempt #")


def _is_not_found(error: BaseException | None) -> bool:
    """Return whether ``error`` is kopf's of a list or watch of what the API server has not."""
    return getattr(error, "status", None) == HTTPStatus.NOT_FOUND


class _Waits:
    """Seconds between attempts, without an end: kopf gives up after the last one."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 1.0, 2.0, 3.0), repeat(_MOST_WAIT))


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.networking.error_backoffs = _Waits()
    settings.scanning.disabled = True  # of CRDs and namespaces, which need rights on all of them
    settings.watching.server_timeout = _SERVER_TIMEOUT
    settings.watching.client_timeout = _CLIENT_TIMEOUT
    settings.watching.label_selectors["apps", "v1", DAEMON_SETS] = names.OWNER
    settings.watching.label_selectors["v1", CONFIG_MAPS] = names.OWNER
    return settings


def registry(
    controller: Controller, server: str, sign: Sign | None = None
) -> kopf.OperatorRegistry:
    """Return the handlers."""
    made = kopf.OperatorRegistry()

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=made)
    async def _owner(event: Any, **_: Any) -> None:
        controller.event(OWNERS, event["type"], event["object"])

    @kopf.on.event("apps", "v1", DAEMON_SETS, registry=made)
    async def _daemon_set(event: Any, **_: Any) -> None:
        controller.event(DAEMON_SETS, event["type"], event["object"])

    @kopf.on.event("", "v1", CONFIG_MAPS, registry=made)
    async def _config_map(event: Any, **_: Any) -> None:
        controller.event(CONFIG_MAPS, event["type"], event["object"])

    @kopf.on.startup(registry=made)
    async def _startup(**_: Any) -> None:
        if sign:
            _renew(sign, asyncio.get_running_loop())

    @kopf.on.login(registry=made)
    async def _login(**_: Any) -> Any:
        return _connection(server)

    return made


def _renew(sign: Sign, loop: asyncio.AbstractEventLoop) -> None:
    """Renew it now and then, as long as the loop runs in which the watches are."""
    loop.call_later(EVERY, _renew, sign, loop)
    sign.renew()


def _connection(server: str) -> kopf.ConnectionInfo:
    """Return address and credentials of ``server``. kopf calls this again if they expire."""
    if not server.startswith("https:"):
        return kopf.ConnectionInfo(server=server)
    token = (SERVICE_ACCOUNT / "token").read_text(encoding="ascii").strip()
    return kopf.ConnectionInfo(server=server, token=token, ca_path=str(SERVICE_ACCOUNT / "ca.crt"))
