import json
from pathlib import Path

import pytest

from deviceplugin_testing.tools.bench import _node, main
from deviceplugin_testing.tools.bench._errors import BenchError


def test_what_plugins_cost_apart_and_together_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {name: _node.PLUGINS[name] for name in ("gopher", "generic")}
    monkeypatch.setattr(_node, "PLUGINS", few)
    path = tmp_path / "node.json"
    assert 0 == main(["--node", "--quick", f"--json={path}"])
    apart, together = json.loads(path.read_text())["sections"]
    assert (_node.APART, _node.TOGETHER) == (apart["title"], together["title"])
    one, two = (
        {figure["name"]: figure["median"] for figure in section["figures"]}
        for section in (apart, together)
    )
    assert one.keys() == two.keys()
    assert one["threads of 2 plugins"] > two["threads of 2 plugins"]
    assert one["RSS of 2 plugins"] > 1.5 * two["RSS of 2 plugins"]
    assert two["PSS of 2 plugins"] <= two["RSS of 2 plugins"]


def test_a_plugin_without_hardware_is_up_when_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_node, "PLUGINS", {"amd": _node.PLUGINS["amd"]})
    (section, _) = _node.measure(0.1, lambda _text: None)
    assert 30 < section.figures[0].median, "MiB"


def test_a_plugin_that_is_not_installed_is_named() -> None:
    with pytest.raises(BenchError, match="no-such-device-plugin is not installed"):
        _node._program("no-such-device-plugin")


@pytest.mark.parametrize("words", [["--bare"], ["--soak=1s"], ["--core"], ["--", "x"]])
def test_it_is_for_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert 2 == main(["--node", *words])
    assert "--node is for itself" in capsys.readouterr().err
