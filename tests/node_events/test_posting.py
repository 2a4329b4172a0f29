"""Creating Events: what is sent to an API server, and what is made of its answers."""

from datetime import UTC, datetime

import pytest

from cluster.event_api import Answer, Api
from deviceplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, InvalidError
from deviceplugin.tools.events._notice import Fact, Notice, as_event
from deviceplugin.tools.events._watch import create_event

NOTICE = Notice(facts=(Fact("example.com/a", "d", good=False, since="then"),))
EVENT = as_event(NOTICE, "worker-3", datetime(2026, 11, 21, tzinfo=UTC))


def test_an_event_is_created_and_one_that_is_there_already_is_as_good(api: Api) -> None:
    for _ in range(2):
        create_event(ApiServer(api.url), EVENT)
    assert (2, [EVENT]) == (len(api.asked), list(api.events.values()))


def test_an_event_that_is_invalid_is_refused_for_good(api: Api) -> None:
    with pytest.raises(InvalidError, match="can have at most 1024 bytes"):
        create_event(ApiServer(api.url), EVENT | {"message": "x" * 1025})


@pytest.mark.parametrize(
    ("status", "kind", "end"),
    [
        (403, ForbiddenError, "no; apply the ClusterRole and its binding of the component events"),
        (401, ForbiddenError, "no; is the token of the component events mounted?"),
        (429, ApiServerError, "no"),
    ],
)
def test_who_has_no_rights_is_told_what_to_apply(
    api: Api, status: int, kind: type[ApiServerError], end: str
) -> None:
    api.failures.append(Answer(status, "no", {"Retry-After": "7"}))
    with pytest.raises(kind) as error:
        create_event(ApiServer(api.url), EVENT)
    assert str(error.value).endswith(f"answers {status}: {end}")
    assert 7 == error.value.after
