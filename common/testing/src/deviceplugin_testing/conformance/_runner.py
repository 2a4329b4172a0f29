"""Running checks one after the other."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import grpc

from deviceplugin._platform import rpc
from deviceplugin_testing.conformance._check import Check, Failed, NotApplicable, Result, Verdict
from deviceplugin_testing.simulator import (
    CallError,
    ContainerStartError,
    KubeletCrashed,
    KubeletStopped,
)


class Trial(Protocol):
    """What checks run on, as far as it concerns their order."""

    hopeless: str
    """Why the plugin is not started any more; empty if it is."""

    def discard(self) -> None:
        """End the plugin; the next check gets a new one."""


def run(
    trial: Trial,
    checks: Sequence[Check],
    say: Callable[[Result], None],
    begins: Callable[[Check], None] = lambda _: None,
) -> list[Result]:
    """Run ``checks`` in order, and return their results.

    ``begins`` is called with each check before it runs, and ``say`` with each result at once.
    """
    results = []
    for check in checks:
        begins(check)
        begin = time.monotonic()
        verdict, text = _run(trial, check)
        if verdict is Verdict.FAIL and check.disturbing and not trial.hopeless:
            trial.discard()
        result = Result(check, verdict, text, time.monotonic() - begin)
        results.append(result)
        say(result)
    return results


def _run(trial: Trial, check: Check) -> tuple[Verdict, str]:
    try:
        return Verdict.PASS, check.run(trial)
    except NotApplicable as reason:
        return Verdict.NOT_APPLICABLE, str(reason)
    except Failed as failure:
        return Verdict.FAIL, str(failure)
    except grpc.RpcError as error:
        return Verdict.FAIL, f"a call failed: {rpc.status_text(error)}"
    except (KubeletCrashed, KubeletStopped) as end:
        trial.discard()
        return Verdict.NOT_APPLICABLE, str(end)
    except (CallError, ContainerStartError, LookupError, TimeoutError) as error:
        return Verdict.FAIL, str(error)
