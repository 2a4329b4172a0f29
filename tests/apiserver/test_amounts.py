"""Counting devices as a node has them."""

from deviceplugin.apiserver import devices_in


def test_devices_are_counted_as_the_api_server_writes_them() -> None:
    amounts = {
        "cpu": "8",
        "memory": "16Gi",
        "hugepages-2Mi": "0",
        "kubernetes.io/batch-cpu": "4",
        "nvidia.com/gpu": "8",
        "example.com/dongle": "1k",
        "example.com/port": "1500",
        "example.com/none": "0",
        "example.com/part": "500m",
        "example.com/half": "0.5",
        "example.com/number": 3,
    }
    expected = {
        "nvidia.com/gpu": 8,
        "example.com/dongle": 1000,
        "example.com/port": 1500,
        "example.com/none": 0,
        "example.com/number": 3,
    }
    assert expected == devices_in(amounts)
