"""What can end an operation of the simulated kubelet early."""


class KubeletCrashed(RuntimeError):  # noqa: N818 - reads as what happened
    """The real kubelet would have died here, of a nil pointer.

    The message says why. The simulated one has stopped, and can be started again.
    """


class KubeletStopped(RuntimeError):  # noqa: N818 - reads as what happened
    """The kubelet was stopped, or was not running."""


class ContainerStartError(RuntimeError):
    """A container could not be created; the kubelet tries again later."""

    reason = "CreateContainerConfigError"
    """The reason in the container's waiting state."""


class CallError(Exception):
    """A call of a plugin failed; the message is what a Go client says."""


class AllocationRefusedError(Exception):
    """The device manager's error; the text is what follows ``Allocate failed due to``."""
