"""Creating Events: what is sent to an API server, and what is made of its answers."""

from datetime import UTC, datetime

import pytest

from cluster.event_api import Answer, Api
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, InvalidError
from deviceplugin.tools.events._notice import Fact, Notice, as_event
from deviceplugin.tools.events._watch import create_event

NOTICE = Notice(facts=(Fact("example.com/a", "d", good=False, since="then"),))
EVENT = as_event(NOTICE, "worker-3", datetime(2026, 11, 21, tzinfo=UTC))


def test_an_event_is_created(api: Api) -> None:
    create_event(ApiServer(api.url), EVENT)
    assert [EVENT] == list(api.events.values())


def test_one_that_is_there_already_is_as_good(api: Api) -> None:
    create_event(ApiServer(api.url), EVENT)
    create_event(ApiServer(api.url), EVENT)
    assert (2, 1) == (len(api.asked), len(api.events))


def test_an_event_that_is_invalid_is_refused_for_good(api: Api) -> None:
    with pytest.raises(InvalidError, match="can have at most 1024 bytes"):
        create_event(ApiServer(api.url), EVENT | {"message": "x" * 1025})


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (403, "answers 403: no; apply the ClusterRole and its binding of the component events"),
        (401, "answers 401: no; is the token of the component events mounted?"),
    ],
)
def test_who_has_no_rights_is_told_what_to_apply(api: Api, status: int, advice: str) -> None:
    api.failures.append(Answer(status, "no"))
    with pytest.raises(ForbiddenError) as error:
        create_event(ApiServer(api.url), EVENT)
    assert str(error.value).endswith(advice)


def test_other_failures_are_as_the_api_server_says(api: Api) -> None:
    api.failures.append(Answer(429, "too many", {"Retry-After": "7"}))
    with pytest.raises(ApiServerError, match="answers 429: too many") as error:
        create_event(ApiServer(api.url), EVENT)
    assert 7 == error.value.after
