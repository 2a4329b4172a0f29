"""What pods show that concerns devices, what that means, and what to do: common/docs/pods.md.

The texts are those of the scheduler, the kubelet and runtimes in Kubernetes 1.30 to 1.36.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple


class Symptom(NamedTuple):
    """Something that the status of a pod, its containers or its events may say."""

    pattern: str
    """What is searched for in ``REASON: MESSAGE``."""
    means: str
    do: str
    is_fatal: bool = True
    """Whether it keeps the pod from running with its devices."""


_AGAIN: Final = "delete the pod, or wait for its controller to make another one"
_ASK: Final = "ask who runs the cluster: deviceplugin doctor on the node says more"
SYMPTOMS: Final[Sequence[Symptom]] = (
    # What the scheduler says.
    Symptom(
        r"Insufficient \S+/\S+",
        "no node that the pod may run on has as many free devices",
        "compare the request with the free devices of the cluster; check the name of the "
        "resource, node selectors and taints",
    ),
    Symptom(
        r"Insufficient (cpu|memory|ephemeral-storage|hugepages-\S+?)(?=[,. ]|$)|Too many pods",
        "nodes have devices, and lack something else that the pod requests",
        "request less of it, or add nodes",
    ),
    Symptom(
        r"had untolerated taint|were unschedulable",
        "some nodes keep pods away: those with devices often have a taint, and others are cordoned",
        "add a toleration for the taint, if the pod may run there: kubectl describe node shows it",
    ),
    Symptom(
        r"didn't match (Pod's|the pod's|pod|the requested) (node|topology|affinity|anti)",
        "the pod itself excludes these nodes",
        "compare its nodeSelector and affinity with kubectl get nodes --show-labels",
    ),
    Symptom(
        r"SchedulingGated",
        "something holds the pod back before the scheduler looks at it, such as a queue",
        "look at schedulingGates of the pod, and at the queue",
    ),
    Symptom(
        r"cannot allocate all claims|cannot schedule extended resource claim|cannot fit resource",
        "on the nodes that are left, no free device fits the claim's class and selectors, or there "
        "is no room for another part of a device that is given out in parts",
        "compare the selectors with kubectl get resourceslices -o yaml: names and types count; "
        "deviceplugin fleet says how many parts of each profile are possible",
    ),
    Symptom(
        r"device class \S+ does not exist",
        "nobody has made the DeviceClass that the claim names",
        "correct deviceClassName, or ask who runs the cluster to apply the class",
    ),
    Symptom(
        r"ResourceClaim not created yet|FailedResourceClaimCreation|"
        r"resourceclaim(\S*) \"\S+\" not found",
        "the claim is not there, or could not be made from its template",
        "create the ResourceClaim or ResourceClaimTemplate that the pod names, in its namespace",
    ),
    Symptom(
        r"resourceclaim in use|resourceclaim not available on the node|"
        r"in the process of being allocated|resourceclaim \"\S+\" is being deleted",
        "the claim belongs to other pods too, and with it a node and devices",
        "use a resourceClaimTemplateName, which makes a claim for each pod, or wait",
    ),
    Symptom(
        r"device binding (timeout|failed)|waiting for binding conditions",
        "a device that must be attached before the pod starts was not attached",
        "look at the devices in the status of the claim, and at the log of its driver",
    ),
    Symptom(
        r"exceeded quota: .*requests\.\S+/\S+",
        "the namespace may not have more of these devices, so the pod was never created",
        "kubectl describe resourcequota; end other pods, or ask for a larger quota",
    ),
    # What the kubelet says when it admits a pod. The pod is then Failed for good.
    Symptom(
        r"OutOf\S+/\S+|Node didn't have enough resource: \S+/\S+",
        "the pod came to a node that has too few devices, by nodeName or because they became "
        "fewer meanwhile",
        f"{_AGAIN}; leave nodeName to the scheduler",
    ),
    Symptom(
        r"no healthy devices present; cannot allocate unhealthy devices|"
        r"cannot allocate unregistered device|unknown Device Plugin",
        "all devices of the node are unhealthy or its plugin is away, also for a moment, as when "
        "the node reboots. It happens to pods that ask for 0, too, and to those with a claim by a "
        "DeviceClass (extendedResourceClaimStatus) on a node of Kubernetes before 1.36",
        f"{_AGAIN}. If that fails again, {_ASK}",
    ),
    Symptom(
        r"previously allocated devices are no longer healthy",
        "a device of the pod became unhealthy, and the kubelet restarted or the pod was resized",
        _AGAIN,
    ),
    Symptom(
        r"requested number of devices unavailable for",
        "the kubelet has fewer free devices than the scheduler counted: some became unhealthy, or "
        "a pod that has ended still holds some",
        f"{_AGAIN}. If that fails again, {_ASK}",
    ),
    Symptom(
        r"Allocate failed due to rpc error: code = (Unavailable|Canceled|DeadlineExceeded)",
        "the plugin ended or lost its connection while it was asked for the devices",
        _AGAIN,
    ),
    Symptom(
        r"Allocate failed due to rpc error: code = (?!Unavailable|Canceled|DeadlineExceeded)",
        "the plugin refused; the rest of the message is its reason",
        f"as the reason says. The kubelet does not try this pod again: {_AGAIN}",
    ),
    Symptom(
        r"GetPreferredAllocation rpc failed|no containers return in allocation response|"
        r"unexpectedly allocated less resources than required",
        "the plugin answers wrongly, or is too old for this kubelet",
        "report it to who maintains the plugin, with its log",
    ),
    Symptom(
        r"changed request for resource",
        "the number of devices of a pod that runs cannot be changed",
        "create another pod with the new number",
    ),
    Symptom(
        r"Allocate failed due to failed to write checkpoint",
        "the kubelet cannot record devices: the disk of the node is full or read-only",
        _ASK,
    ),
    Symptom(
        r"TopologyAffinityError|Resources cannot be allocated with Topology locality",
        "the kubelet's topology manager (restricted or single-numa-node) finds no NUMA nodes with "
        "enough free devices and CPUs together",
        "ask for fewer devices or CPUs, or delete pods that hold those of one NUMA node. The "
        "kubelet does not try this pod again",
    ),
    Symptom(
        r"DeletionByDeviceTaintManager",
        "a device of the pod got a taint, as for an outage, and the pod was evicted",
        "wait for its controller; a toleration in the claim's request keeps pods on such devices",
    ),
    # What keeps containers from starting. The kubelet tries again.
    Symptom(
        r"unresolvable CDI devices|CDI device injection failed|failed to inject CDI devices",
        "the runtime does not find the CDI file: CDI is off, it reads another directory, or the "
        "plugin has not written the file",
        "ask who runs the cluster for deviceplugin doctor --only cdi on the node",
    ),
    Symptom(
        r"error gathering device information while adding custom device",
        "a device file that the plugin named is not on the node any more",
        f"delete the pod; {_ASK}",
    ),
    Symptom(
        r"error creating device nodes: mount src=|ContainerCreating with hostUsers: false",
        "the pod has a user namespace (hostUsers: false), and runc then finds no device node that "
        "has another path in the container than on the host, such as by mountPath or {position}",
        "leave hostUsers: false away, or let the plugin give the node under its own path",
    ),
    Symptom(
        r"short-name \S+ did not resolve|short name mode is enforcing",
        "the node has CRI-O, which does not complete names of images as containerd does",
        "name the image in full, such as localhost/NAME:TAG for one that was loaded on the node",
    ),
    Symptom(
        r"pinging container registry localhost|failed to resolve reference .localhost/",
        "the image is one that is loaded on nodes: this one lacks it, or asks a registry first",
        "load it on the node, and set imagePullPolicy to IfNotPresent",
    ),
    Symptom(
        r"nvidia-container-cli|no runtime for \S+ is configured|RuntimeHandler \S+ not supported",
        "the node's container runtime is not set up for this vendor, or does not find its driver",
        "check runtimeClassName of the pod; on the node, deviceplugin doctor --plugin gpu",
    ),
    Symptom(
        r"device plugin PreStartContainer rpc failed|endpoint not found in cache for a registered|"
        r"no devices found allocated in local cache",
        "the plugin's preparation of the device failed, or the plugin is away",
        "look at the plugin's log; the kubelet tries again",
    ),
    Symptom(
        r"DRA driver \S+ is not registered",
        "the driver of the claim does not run on this node, or has just started",
        "wait a minute; then check that the driver's pod runs on the node",
    ),
    Symptom(
        r"NodePrepareResources.*(without room|somebody else|part not made)",
        "the part of a device could not be made: others have what it needs, or made something that "
        "the driver must not remove",
        "deviceplugin fleet says what is possible. Who runs the cluster can ask deviceplugin "
        "devices, and deviceplugin doctor --only parts on the node",
    ),
    Symptom(
        r"NodePrepareResources",
        "the DRA driver could not prepare the claim; the message says why",
        "as the message says. The kubelet tries again after a minute",
    ),
    Symptom(
        r"is not allowed to use ResourceClaim|ResourceClaim \S+: not allocated",
        "the pod came to its node without the scheduler, which gives out and reserves claims",
        "leave nodeName away, or use a nodeSelector",
    ),
    Symptom(
        r"old ResourceClaim with same name",
        "a pod that was deleted by force left a claim of this name prepared on the node",
        "wait until its containers have ended",
    ),
    Symptom(
        r"allocatedResourcesStatus",
        "a device became unhealthy while the pod holds it. The pod keeps it",
        "delete the pod to get another device; deviceplugin evict does so by itself",
        is_fatal=False,
    ),
    Symptom(
        r"Terminating for \S+ beyond its grace period",
        "its containers do not end, or the driver that should release its claim is gone",
        "start the driver again; drain it before it is removed. kubectl describe pod has the rest",
    ),
)


def symptoms_in(text: str) -> Iterator[Symptom]:
    """Yield all that ``text`` shows, in the order of the table."""
    for one in SYMPTOMS:
        if re.search(one.pattern, text):
            yield one
