"""The charts, written once."""

from pathlib import Path

import pytest

import release


@pytest.fixture(scope="session")
def chart_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory, operator=False)


@pytest.fixture(scope="session")
def operator_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory, operator=True)


def _written(factory: pytest.TempPathFactory, *, operator: bool) -> Path:
    folder = factory.mktemp("chart") / "made"
    release.write_chart(folder, operator=operator)
    return folder
