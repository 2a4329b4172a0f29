"""A manifest of which any place is odd: an overlay, or one clear error, and never a traceback."""

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deviceplugin.__main__ import main
from kustomize import documents

ODD: Final[tuple[Any, ...]] = (
    *(5, None, True, -1.5, "", "x", [], {}, [[1]], ["x", 5], {"a": {"b": [None]}}, {5: 6}),
)
Path_ = tuple[str | int, ...]
CASES: Final = {
    path.stem: documents(path.read_bytes())
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
}
"""What people have, in each form."""


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Yield the paths of all values in ``value``."""
    inner = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else inner:
        yield (*path, key)
        yield from places(one, (*path, key))


def replaced(value: Any, path: Path_, odd: object) -> Any:
    """Return ``value`` with ``odd`` at ``path``."""
    if not path:
        return odd
    copy = value.copy()
    inner = value.get(path[0]) if isinstance(value, dict) else value[path[0]]
    copy[path[0]] = replaced(inner, path[1:], odd)
    return copy


ONE = st.sampled_from(sorted(CASES)).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.sampled_from(sorted(places(CASES[name]), key=str)),
        st.sampled_from(ODD),
    )
)
SPEC = (0, "spec", "template", "spec")
STATIC = "nvidia-static"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file for the manifest."""
    return tmp_path_factory.mktemp("migrate") / "peer.yaml"


@settings(max_examples=40)
@given(one=ONE)
@example(one=(STATIC, (*SPEC, "tolerations"), 5))
@example(one=(STATIC, (*SPEC, "containers", 0, "ports"), 5))
@example(one=(STATIC, (*SPEC, "initContainers"), "x"))
@example(one=(STATIC, (*SPEC, "initContainers"), [None]))
@example(one=(STATIC, (*SPEC, "volumes", 0, "hostPath", "path"), 5))
@example(one=("squat-file-toml", (*SPEC, "volumes", 0, "configMap", "name"), []))
@example(one=("squat-file-toml", (*SPEC, "volumes", 0, "configMap", "items"), 5))
@example(one=("squat-file-toml", (*SPEC, "volumes", 0, "configMap", "items"), ["x"]))
@example(one=("nvidia-values-without-default", (0, "config", "default"), [[1]]))
@example(one=("nvidia-values-mps", (0, "deviceListStrategy"), 5))
def test_an_odd_place_is_an_overlay_or_a_clear_error(
    file: Path, one: tuple[str, Path_, object]
) -> None:
    name, place, odd = one
    file.write_text(yaml.safe_dump_all(replaced(CASES[name], place, odd)), encoding="utf-8")
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(["migrate", str(file)])
    lines = err.getvalue().splitlines()
    assert (status == 2) == bool(lines) == (not out.getvalue())
    assert all(line.startswith("deviceplugin migrate: ") for line in lines)
    assert "report this" not in err.getvalue()
