"""What migrates manifests, and checks what comes of it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from deviceplugin_cli.migrate._cli import main
from manifests.kustomize import ROOT, Manifest, render

Migrate = Callable[..., str]


@pytest.fixture
def migrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Migrate:
    """Return what migrates documents and returns the overlay, which is also written."""

    def migrated(*documents: object, name: str = "peer.yaml", flags: tuple[str, ...] = ()) -> str:
        texts = [one if isinstance(one, str) else yaml.safe_dump(one) for one in documents]
        path = tmp_path / name
        path.write_text("\n---\n".join(texts), encoding="utf-8")
        deployments = os.path.relpath(ROOT / "deployments", tmp_path.resolve())
        status = main([str(path), f"--deployments={deployments}", *flags])
        out, err = capsys.readouterr()
        assert (0, "") == (status, err)
        (tmp_path / "kustomization.yaml").write_text(out, encoding="utf-8")
        return out

    return migrated


@pytest.fixture
def rendered(tmp_path: Path) -> Callable[[], list[Manifest]]:
    """Return what renders the overlay, as the operator does."""
    return lambda: list(render(tmp_path))
