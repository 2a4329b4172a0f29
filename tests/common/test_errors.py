import pytest

from deviceplugin import errors


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        (errors.ConfigError, errors.DevicePluginError),
        (errors.DiscoveryError, errors.DevicePluginError),
        (errors.AllocationError, errors.DevicePluginError),
        (errors.UnknownDeviceError, errors.AllocationError),
        (errors.UnhealthyDeviceError, errors.AllocationError),
        (errors.KubeletError, errors.DevicePluginError),
        (errors.KubeletUnavailableError, errors.KubeletError),
        (errors.RegistrationRefusedError, errors.KubeletError),
    ],
)
def test_every_error_stands_where_the_drawing_shows_it(
    error: type[Exception], parent: type[Exception]
) -> None:
    assert (parent,) == error.__bases__


def test_the_drawing_shows_every_error() -> None:
    drawn = errors.__doc__ or ""
    missing = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and name not in drawn
    ]
    assert [] == missing


def test_an_allocation_error_says_which_devices_of_which_resource() -> None:
    error = errors.UnknownDeviceError("no such", resource="x.io/dev", device_ids=["a", "b"])
    assert "no such" == str(error)
    assert ("x.io/dev", ("a", "b")) == (error.resource, error.device_ids)
    assert ("", ()) == (
        errors.AllocationError("busy").resource,
        errors.AllocationError("").device_ids,
    )
