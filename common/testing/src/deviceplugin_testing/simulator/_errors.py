"""The errors of the simulated kubelet."""


class KubeletCrashed(RuntimeError):  # noqa: N818 - reads as what happened
    """Here the real kubelet would have crashed with a nil pointer dereference.

    The message says why. The simulated kubelet has stopped, and can be started again.
    """


class KubeletStopped(RuntimeError):  # noqa: N818 - reads as what happened
    """The kubelet was stopped, or was not running."""


class ContainerStartError(RuntimeError):
    """A container could not be created; the kubelet tries again later."""

    reason = "CreateContainerConfigError"
    """The reason in the container's waiting state."""


class ContainerCreateError(ContainerStartError):
    """The container runtime could not create a container; the kubelet tries again later."""

    reason = "CreateContainerError"


class PodNotReadyError(RuntimeError):
    """A pod has no sandbox, because its claims are not prepared; the kubelet tries again later."""


class CallError(Exception):
    """A call to a plugin failed. The message is that of a Go client."""


class AllocationRefusedError(Exception):
    """The device manager's error. Its message follows ``Allocate failed due to``."""


class ConnectError(Exception):
    """A plugin could not be connected. The plugin gets the message as the answer."""
