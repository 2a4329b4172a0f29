"""What kopf does: it watches, and says what has changed; all decisions are the controller's.

Only ``on.event`` is used. Other handlers of kopf put finalizers and annotations on users' objects,
and an object with a finalizer cannot be deleted while the operator is away.
"""

import logging
from typing import Any, Final

import kopf

from deviceplugin.apiserver import SERVICE_ACCOUNT
from deviceplugin_operator import names
from deviceplugin_operator.controller import Controller
from deviceplugin_operator.seen import CONFIG_MAPS, DAEMON_SETS, OWNERS

_SERVER_TIMEOUT: Final = 300
"""Whole seconds after which the API server ends a watch, and it is begun anew."""
_CLIENT_TIMEOUT: Final = 330.0
"""Seconds after which it is ended here: a load balancer may have forgotten the connection."""


def run(
    controller: Controller, namespace: str, server: str, *, liveness: str = "", stop: Any = None
) -> None:
    """Watch, and run ``controller``, until SIGTERM or SIGINT, or ``stop`` is set.

    Args:
        controller: Gets the events.
        namespace: Where the operator makes its objects.
        server: The API server's address.
        liveness: Address of the liveness probe, such as ``http://0.0.0.0:8080/healthz``.
        stop: An event of threading or asyncio.
    """
    kopf.configure(log_format=kopf.LogFormat.JSON)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    controller.start()
    try:
        kopf.run(
            registry=registry(controller, server),
            settings=_settings(),
            standalone=True,
            namespaces=[namespace],
            liveness_endpoint=liveness or None,
            stop_flag=stop,
        )
    finally:
        controller.stop()


def _settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # of CRDs and namespaces, which need rights on all of them
    settings.watching.server_timeout = _SERVER_TIMEOUT
    settings.watching.client_timeout = _CLIENT_TIMEOUT
    settings.watching.label_selectors["apps", "v1", DAEMON_SETS] = names.OWNER
    settings.watching.label_selectors["v1", CONFIG_MAPS] = names.OWNER
    return settings


def registry(controller: Controller, server: str) -> kopf.OperatorRegistry:
    """Return what kopf is to call."""
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

    @kopf.on.probe(id="controller", registry=made)
    async def _probe(**_: Any) -> str:
        if problem := controller.problem():
            raise kopf.PermanentError(problem)
        return "well"

    @kopf.on.login(registry=made)
    async def _login(**_: Any) -> Any:
        return _connection(server)

    return made


def _connection(server: str) -> kopf.ConnectionInfo:
    """Return how to ask ``server``; kopf asks for it again when the token is not accepted."""
    if not server.startswith("https:"):
        return kopf.ConnectionInfo(server=server)
    token = (SERVICE_ACCOUNT / "token").read_text(encoding="ascii").strip()
    return kopf.ConnectionInfo(server=server, token=token, ca_path=str(SERVICE_ACCOUNT / "ca.crt"))
