"""Every error of the framework.

::

    DevicePluginError
    ├── ConfigError                  exit status 2, before anything is served
    ├── DiscoveryError               the last good snapshot stays; discovery is tried again
    ├── AllocationError              refuses one request; the kubelet rejects the pod
    │   ├── UnknownDeviceError         NOT_FOUND on the wire
    │   └── UnhealthyDeviceError       FAILED_PRECONDITION on the wire
    └── KubeletError                 authors of plugins never see it
        ├── KubeletUnavailableError    tried again for ever
        └── RegistrationRefusedError   stops this resource only, until the kubelet restarts

Messages are lower case, name the thing and its value, and do not end in a full stop: they appear
in the middle of a pod's status.
"""

from collections.abc import Sequence


class DevicePluginError(Exception):
    """Any error that this framework raises on purpose."""


class ConfigError(DevicePluginError):
    """A setting is missing, unknown or has a value that cannot be used."""


class DiscoveryError(DevicePluginError):
    """The devices cannot be discovered now.

    Raise it from ``Plugin.discover``. Operators read its message as the reason.
    """


class AllocationError(DevicePluginError):
    """A request for devices is refused.

    Raise it from ``Plugin.allocate`` or ``Plugin.pre_start``. The message ends up in the status
    of the pod that asked, so keep it short and say what to do.

    Attributes:
        resource: Name of the requested resource, filled in by the framework.
        device_ids: Ids that the error is about; by default all of the request's.
    """

    def __init__(self, message: str, *, resource: str = "", device_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.resource = resource
        self.device_ids = tuple(device_ids)


class UnknownDeviceError(AllocationError):
    """A request names a device that does not exist."""


class UnhealthyDeviceError(AllocationError):
    """A request names a device that is unhealthy."""


class KubeletError(DevicePluginError):
    """The kubelet did not do what it was asked."""


class KubeletUnavailableError(KubeletError):
    """No kubelet answers, or it cannot answer at the moment."""


class RegistrationRefusedError(KubeletError):
    """The kubelet will not accept this resource, however often it is asked."""
