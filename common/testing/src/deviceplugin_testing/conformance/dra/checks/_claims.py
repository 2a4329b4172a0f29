"""Claims: what a driver prepares, and what it refuses."""

from typing import Final

from deviceplugin_testing.conformance._check import CheckGroup, Failed, NotApplicable
from deviceplugin_testing.conformance.dra._node import Claim, DraNode, Offered
from deviceplugin_testing.conformance.dra._trial import (
    DraTrial,
    exclusive,
    prepared,
    refused,
    released,
)

GROUP: Final = CheckGroup("claims", "Claims")


def first(trial: DraTrial) -> str:
    """Prepare a claim for the first device, and release it."""
    node = trial.node()
    claim = node.claim(node.devices[0])
    (answer,) = prepared(node, claim)
    found = [(each.pool_name, each.device_name) for each in answer.devices]
    released(node, claim)
    wanted = node.devices[0][:2]
    if found != [wanted]:
        raise Failed(f"answered with {found or 'no device'} instead of {wanted}")
    return f"prepared {node.devices[0].device}"


def ready(trial: DraTrial) -> DraNode:
    """Return a node whose driver prepares a claim; raise ``NotApplicable`` if it does not."""
    trial.once_before(first)
    return trial.node()


@GROUP.check(
    "allocated",
    "Prepares the device that is allocated, by its pool and name",
    why="The kubelet shows health and holders by pool and device.",
)
def _allocated(trial: DraTrial) -> str:
    return trial.once(first)


@GROUP.check(
    "repeatable",
    "Answers the same for a claim that is prepared",
    why="After a restart the kubelet asks again, and adds the answer to the one from before.",
)
def _repeatable(trial: DraTrial) -> str:
    node = ready(trial)
    claim = node.claim(node.devices[0])
    answers = [prepared(node, claim)[0] for _ in range(3)]
    released(node, claim)
    if any(answer != answers[0] for answer in answers):
        raise Failed("the answers differ")
    return "3 equal answers"


@GROUP.check(
    "missing",
    "Refuses a claim that is not there",
    why="Without the claim, a driver can only guess which device is meant.",
)
def _missing(trial: DraTrial) -> str:
    node = trial.node()
    claim = node.claim(node.devices[0])
    node.cluster.delete("ResourceClaim", claim["metadata"]["name"])
    return refused(node, claim, "a claim that is not there")


@GROUP.check(
    "uid",
    "Refuses a claim whose uid is not that of the request",
    why="A claim that was made again under its name is another claim, with other devices.",
)
def _uid(trial: DraTrial) -> str:
    node = trial.node()
    claim = node.claim(node.devices[0])
    other = {
        **claim,
        "metadata": {**claim["metadata"], "uid": "00000000-0000-0000-0000-000000000000"},
    }
    return refused(node, other, "a claim with another uid")


@GROUP.check(
    "not-allocated",
    "Refuses a claim that is not allocated",
    why="Nobody has decided which device it gets.",
)
def _not_allocated(trial: DraTrial) -> str:
    node = trial.node()
    return refused(node, node.claim(allocated=False), "a claim that is not allocated")


@GROUP.check(
    "unknown-device",
    "Refuses a device that it does not have",
    why="The container would start without the device that its claim names.",
)
def _unknown_device(trial: DraTrial) -> str:
    node = trial.node()
    claim = node.claim(Offered(node.devices[0].pool, "no-such-device"))
    return refused(node, claim, "no-such-device")


@GROUP.check(
    "one-holder",
    "Refuses a device that another claim has",
    why="Schedulers race, and leave stale claims; only the driver can prevent a double booking.",
)
def _one_holder(trial: DraTrial) -> str:
    return trial.once(one_holder)


def one_holder(trial: DraTrial) -> str:
    """Prepare a claim, see another one for the same device refused, and prepare it afterwards."""
    node = ready(trial)
    device = exclusive(node)[0]
    one, two = node.claim(device), node.claim(device)
    prepared(node, one)
    try:
        words = refused(node, two, "a second claim")
    finally:
        released(node, one)
    prepared(node, two)
    released(node, two)
    return words


@GROUP.check(
    "shares",
    "Prepares shares of one device, each with its id, and releases each by itself",
    why="Claims share the device at the same time; the id tells the kubelet which one is meant.",
)
def _shares(trial: DraTrial) -> str:
    node = ready(trial)
    shared = next((device for device in node.devices if device.consumed is not None), None)
    if shared is None:
        raise NotApplicable("none of its devices is shared")
    one, two = node.claim(shared), node.claim(shared)
    answers = prepared(node, one, two)
    for claim, answer in zip((one, two), answers, strict=True):
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        if [each.share_id for each in answer.devices] != [result["shareID"]]:
            raise Failed("answered without the id of the share, or with another")
    names = [
        {name for each in answer.devices for name in each.cdi_device_ids} for answer in answers
    ]
    if names[0] & names[1]:
        raise Failed(f"two shares got {', '.join(sorted(names[0] & names[1]))}")
    released(node, one)
    again = prepared(node, two)
    released(node, two)
    if again != answers[1:]:
        raise Failed("the release of one share changed another")
    return f"two claims shared {shared.device}"


@GROUP.check(
    "apart",
    "Prepares good claims beside a bad one, and answers for each",
    why="A claim that is missing in the answer, or an error for all, holds up pods for nothing.",
)
def _apart(trial: DraTrial) -> str:
    node = ready(trial)
    good = node.claim(node.devices[0])
    bad = node.claim(Offered(node.devices[0].pool, "no-such-device"))
    yes, no = node.prepare(good, bad)
    released(node, good)
    if yes.error:
        raise Failed(f"refused the good claim too: {yes.error}")
    if not no.error:
        raise NotApplicable("the bad claim is prepared")
    return "prepared one claim, and refused the other"


@GROUP.check(
    "foreign-config",
    "Skips configuration for other drivers",
    why="A claim for devices of several drivers has the configuration of each.",
)
def _foreign_config(trial: DraTrial) -> str:
    node = ready(trial)
    opaque = {"driver": "other.example.com", "parameters": {"kind": "Other"}}
    claim = node.claim(node.devices[0], config=[{"source": "FromClaim", "opaque": opaque}])
    prepared(node, claim)
    released(node, claim)
    return "skipped"


@GROUP.check(
    "unknown-parameters",
    "Refuses parameters that it does not know",
    why="A pod would run without what its claim asks for, and nobody would notice.",
)
def _unknown_parameters(trial: DraTrial) -> str:
    node = ready(trial)
    parameters = {"apiVersion": "conformance.example.com/v1", "kind": "Nonsense", "no": "thing"}
    opaque = {"driver": trial.driver, "parameters": parameters}
    claim = node.claim(node.devices[0], config=[{"source": "FromClaim", "opaque": opaque}])
    words = refused(node, claim, "a claim with them")
    good = node.claim(node.devices[0])
    prepared(node, good)  # nothing is lost
    released(node, good, claim)
    return words


@GROUP.check(
    "foreign-device",
    "Skips devices of other drivers",
    why="A claim can have devices of several drivers; each prepares its own.",
)
def _foreign_device(trial: DraTrial) -> str:
    node = ready(trial)
    claim = node.claim(node.devices[0])

    def add(draft: Claim) -> None:
        results = draft["status"]["allocation"]["devices"]["results"]
        results.append({**results[0], "driver": "other.example.com", "device": "other"})

    node.cluster.change("ResourceClaim", claim["metadata"]["name"], add)
    (answer,) = prepared(node, claim)
    released(node, claim)
    if len(answer.devices) != 1:
        raise Failed(f"answered with {len(answer.devices)} devices")
    return "prepared its own device only"


@GROUP.check(
    "release-unknown",
    "Releases a claim that it does not know",
    why="The kubelet repeats a release that it did not note, and pods hang until it succeeds.",
)
def _release_unknown(trial: DraTrial) -> str:
    node = trial.node()
    released(node, node.claim(node.devices[0]))
    return "no error"


@GROUP.check(
    "release-deleted",
    "Releases a claim whose object is gone",
    why="A pod can be removed by force, with its claim, before the kubelet releases it.",
)
def _release_deleted(trial: DraTrial) -> str:
    node = ready(trial)
    claim = node.claim(node.devices[0])
    prepared(node, claim)
    node.cluster.delete("ResourceClaim", claim["metadata"]["name"])
    released(node, claim)
    again = node.claim(node.devices[0])
    prepared(node, again)
    released(node, again)
    return "released, and prepared for another claim"


@GROUP.check(
    "server-away",
    "Answers for prepared claims, and releases them, while the API server is away",
    why="After a reboot the kubelet may reach the server long before a driver does in its pod.",
)
def _server_away(trial: DraTrial) -> str:
    node = ready(trial)
    one, two = node.claim(node.devices[0]), node.claim(node.devices[-1])
    before = prepared(node, one)
    node.cluster.go_away()
    try:
        again = prepared(node, one)
        words = refused(node, two, "a claim that it could not read")
        released(node, one)
    finally:
        node.cluster.come_back()
        node.unprepare(one)  # whatever has failed: others need the device
    if again != before:
        raise Failed("the answer differs from the one before")
    return f"the same answer, and released; {words}"
