from deviceplugin import errors


def test_every_error_stands_where_the_drawing_shows_it() -> None:
    assert {
        "DevicePluginError": "Exception",
        "ConfigError": "DevicePluginError",
        "DiscoveryError": "DevicePluginError",
        "AllocationError": "DevicePluginError",
        "UnknownDeviceError": "AllocationError",
        "UnhealthyDeviceError": "AllocationError",
        "KubeletError": "DevicePluginError",
        "KubeletUnavailableError": "KubeletError",
        "RegistrationRefusedError": "KubeletError",
    } == {
        name: value.__bases__[0].__name__
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception) and name in str(errors.__doc__)
    }


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
