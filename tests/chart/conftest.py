"""The chart, written once."""

from pathlib import Path

import pytest

from manifests.helm import write_chart


@pytest.fixture(scope="session")
def chart_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_chart(tmp_path_factory.mktemp("chart") / "device-plugins")
