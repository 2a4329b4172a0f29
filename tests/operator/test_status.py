"""The status of an object, as a function of what is there."""

import json

from deviceplugin_operator.observed.fleet import NodeFacts
from deviceplugin_operator.reconciling.status import Seen, status

RESOURCE = "example.com/simple-device"


def test_of_thousands_of_bad_nodes_the_status_names_the_worst() -> None:
    nodes = [
        NodeFacts(f"node-{number:04}", {}, True, {RESOURCE: 8}, {RESOURCE: number % 8})
        for number in range(5000)
    ]
    found = status({"metadata": {"generation": 1}}, Seen([], nodes, [RESOURCE]), "now")
    assert (20, 4980) == (len(found["problems"]), found["problemsLeftOff"])
    assert {0} == {one["healthy"] for one in found["problems"]}
    healthy = sum(number % 8 for number in range(5000))
    assert f"simple-device {healthy}/40000" == found["devices"]
    assert len(json.dumps(found)) < 10_000
