"""The tests of images take minutes, and are of whatever was built last: only for who asks."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "images" not in config.getoption("markexpr"):
        for item in items:
            if item.get_closest_marker("images"):
                item.add_marker(pytest.mark.skip(reason="to be asked for: -m images"))
