"""What the simulated API server answers is what the real one of Kubernetes 1.36.2 answered.

To record the answers of another release: ``RECORD=1 KUBE_APISERVER=… ETCD=… pytest THIS_FILE``.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import real_api_server
from cluster.dra_api.asking import ANSWERS, Asker
from cluster.dra_api.cases import CASES, GATES, NO_COUNTERS
from cluster.dra_api.limits import DROPPED, LISTS
from cluster.dra_objects import Simulated

RECORDED = json.loads(ANSWERS.read_text(encoding="utf-8"))
MISSING = real_api_server.why_not()


@pytest.fixture(scope="module")
def with_lists() -> Iterator[Asker]:
    with Simulated(feature_gates=GATES) as running:
        yield Asker(running.cluster.url)


@pytest.fixture(scope="module")
def without_counters() -> Iterator[Asker]:
    with Simulated(feature_gates=NO_COUNTERS) as running:
        yield Asker(running.cluster.url)


@pytest.mark.parametrize("name", CASES)
def test_the_simulated_server_answers_as_the_real_one_did(
    simulated: Asker, with_lists: Asker, without_counters: Asker, name: str
) -> None:
    server = with_lists if name in LISTS else without_counters if name in DROPPED else simulated
    assert RECORDED[name] == server.answers(CASES[name])


def test_every_recorded_answer_is_to_a_case() -> None:
    assert list(CASES) == list(RECORDED)


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
@pytest.mark.xdist_group("real-api-server")
def test_the_real_server_answers_as_recorded(
    real: Asker, real_with_lists: Asker, real_without_counters: Asker
) -> None:
    servers = {**dict.fromkeys(CASES, real), **dict.fromkeys(LISTS, real_with_lists)}
    servers |= dict.fromkeys(DROPPED, real_without_counters)
    found: dict[str, Any] = {name: servers[name].answers(case) for name, case in CASES.items()}
    if os.environ.get("RECORD"):
        lines = (f"{_line(name)}: {_line(answers)}" for name, answers in found.items())
        ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    assert {} == {name: one for name, one in found.items() if one != RECORDED.get(name)}


def _line(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, sort_keys=True)
