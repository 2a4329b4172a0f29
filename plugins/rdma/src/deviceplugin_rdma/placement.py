"""Which of the free functions a container should get."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import deviceplugin as dp
from deviceplugin.kit.sharing import Policy, Shares
from deviceplugin_rdma.offer import Offered

_NOWHERE: Final = -1


class Placement:
    """What to prefer among the devices of a look. Never changes, so it can be asked in an RPC.

    A container gets functions of one NUMA node if one node has enough. Of these, functions go by
    the policy: first among physical functions, then among the functions of each.

    Args:
        found: All devices.
        policy: Which function is given next.
    """

    def __init__(self, found: Iterable[Offered], policy: Policy) -> None:
        self._policy: Policy = policy
        self._places: dict[str, dict[str, tuple[str, str]]] = {}
        self._nodes: dict[str, int] = {}
        for one in found:
            nic = one.offers[0].nic
            places = self._places.setdefault(str(one.device.resource), {})
            places[one.device.id] = (nic.root, nic.address)
            node = nic.function.numa_node
            self._nodes[one.device.id] = _NOWHERE if node is None else node

    def prefer(
        self, available: Sequence[dp.Device], required: Sequence[dp.Device], size: int
    ) -> list[dp.Device]:
        """Return the devices that go together best."""
        known = {device.id: device for device in (*available, *required)}
        needed = [device.id for device in required]
        shares = Shares(self._of(known.values()), self._policy, distinct=True)
        groups = [group for group in self._groups(known) if len({*group, *needed}) >= size]
        if not groups:
            groups = [list(known)]
        best = min(groups, key=self._rank(groups, needed))
        return [known[one] for one in shares.choose(best, needed, size)]

    def _of(self, devices: Iterable[dp.Device]) -> Mapping[str, tuple[str, str]]:
        names = {str(device.resource) for device in devices}
        return {one: place for name in names for one, place in self._places.get(name, {}).items()}

    def _groups(self, ids: Iterable[str]) -> list[list[str]]:
        """Return the ids of each NUMA node."""
        groups: dict[int, list[str]] = {}
        for one in ids:
            groups.setdefault(self._nodes.get(one, _NOWHERE), []).append(one)
        return [groups[node] for node in sorted(groups)]

    def _rank(
        self, groups: Sequence[Sequence[str]], needed: Sequence[str]
    ) -> Callable[[Sequence[str]], tuple[int, int, int]]:
        """Return what is less for a better group: has what is required, then the policy."""
        sign = 1 if self._policy == "packed" else -1

        def rank(group: Sequence[str]) -> tuple[int, int, int]:
            return -len({*group} & {*needed}), sign * len(group), groups.index(group)

        return rank
