"""``deviceplugin new`` makes a plugin that passes everything at once, or nothing."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fresh_environment
from deviceplugin.__main__ import main
from deviceplugin.errors import ConfigError
from deviceplugin_testing.tools.new._writing import write

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "somewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def run(where: Path, *words: str, path: str) -> str:
    done = subprocess.run(
        words,
        cwd=where,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
def test_what_the_installed_command_makes_passes_everything_at_once(
    tmp_path: Path, somewhere: Path
) -> None:
    wheels = fresh_environment.wheels(tmp_path, ROOT / "common/node", ROOT / "common/testing")
    python, site = sys.executable, str(fresh_environment.unpacked(tmp_path / "site", *wheels))
    words = ("new", "lamp", "--resource=example.org/desk-lamp")
    said = run(somewhere, python, "-m", "deviceplugin", *words, path=site)
    assert "new-plugin.md" in said.splitlines()[-1]
    lamp = somewhere / "lamp"
    path = f"{site}:{lamp}/src"
    run(lamp, str(BIN / "ruff"), "check", "--no-cache", ".", path=path)
    run(lamp, str(BIN / "ruff"), "format", "--check", "--no-cache", ".", path=path)
    run(lamp, python, "-m", "pytest", "-p", "no:cacheprovider", path=path)
    told = run(lamp, python, "-m", "deviceplugin_lamp", "--help", path=path)
    assert "Advertise /dev/lamp* as example.org/desk-lamp." == told.splitlines()[2]
    run(lamp, python, "-m", "hatchling", "build", "-t", "wheel", path=path)


def test_a_dry_run_names_the_same_files_and_makes_none(
    somewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["new", "lamp", "--dry-run"])
    told = {line.split()[-1] for line in capsys.readouterr().out.splitlines()}
    assert set() == below(somewhere)
    assert 0 == main(["new", "lamp"])
    assert told == {str(path) for path in Path("lamp").rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["Lamp"], "name 'Lamp' is not a lower-case letter and up to 19 lower-case letters"),
        (["desk-lamp"], "name 'desk-lamp' is not"),
        (["2lamp"], "name '2lamp' is not"),
        (["l" * 21], f"name '{'l' * 21}' is not"),
        (["lämp"], "name 'lämp' is not"),
        (["base"], "name 'base' is taken"),
        (["lamp", "--resource=lamp"], "--resource 'lamp' is not valid: it needs a domain"),
        (["lamp", "--resource=kubernetes.io/lamp"], "reserved by Kubernetes"),
        (["lamp", f"--resource=example.com/{'l' * 37}"], "has more than 48 characters"),
        (["lamp", "--directory=full"], "full: is not empty; name another place"),
        (["lamp", "--directory=file"], "file: is not a directory"),
        (["lamp", "--directory=dangling"], "dangling: is not a directory"),
        (["lamp", "--directory=/proc/lamp"], "/proc"),
        (["lamp", "--directory=~nobody-of-this-name/x"], "x: there is no such user"),
        (["lamp", f"--directory={'l' * 300}"], "lll: File name too long; nothing was created"),
        (["lamp", "--nonsense"], "unknown argument '--nonsense'"),
        ([], "the following arguments are required: NAME"),
    ],
)
def test_what_cannot_be_is_told_and_leaves_nothing(
    words: list[str], problem: str, somewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (somewhere / "full").mkdir()
    (somewhere / "full/thing").touch()
    (somewhere / "file").touch()
    (somewhere / "dangling").symlink_to("nowhere")
    before = below(somewhere)
    assert 2 == main(["new", *words])
    assert problem in capsys.readouterr().err
    assert before == below(somewhere)


def test_a_second_time_is_refused_and_changes_nothing(somewhere: Path) -> None:
    assert 0 == main(["new", "lamp"])
    before = contents(somewhere)
    assert 2 == main(["new", "lamp", "--resource=example.com/other"])
    assert before == contents(somewhere)


def test_of_many_at_once_exactly_one_makes_it(somewhere: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert [0, 2, 2, 2] == sorted(pool.map(main, [["new", "lamp"]] * 4))
    (somewhere / "empty").mkdir()
    for folder in ("empty", "one/two"):  # one that there is, and one that there is not yet
        assert 0 == main(["new", "lamp", f"--directory={folder}"])
        assert below(somewhere / folder) == below(somewhere / "lamp")


def test_an_edit_that_fails_takes_back_the_edits_before_it(somewhere: Path) -> None:
    def refuse(text: str) -> str:
        if "second" not in text:
            raise ConfigError("no place for it")
        (somewhere / "late").unlink()  # somebody else, between the look and the edit
        return text

    for name in ("early", "late"):
        (somewhere / name).write_text(f"{name} second")
    edits = {Path("early"): lambda _text: "edited", Path("late"): refuse}
    with pytest.raises(FileNotFoundError, match="late"):
        write(somewhere, {Path("new/file"): ""}, edits, dry=False)
    assert {"early"} == below(somewhere)
    assert "early second" == (somewhere / "early").read_text()


def test_an_edit_in_progress_is_not_written_over(somewhere: Path) -> None:
    (somewhere / "page").write_text("text")
    (somewhere / "page.new").touch()
    with pytest.raises(ConfigError, match=r"page\.new: exists already; nothing was created"):
        write(somewhere, {Path("file"): ""}, {Path("page"): str.upper}, dry=False)
    assert {"page", "page.new"} == below(somewhere)


@pytest.fixture
def workspace(somewhere: Path) -> Path:
    for name in ("pyproject.toml", "common/node/pyproject.toml"):
        (somewhere / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, somewhere / name)
    (somewhere / "plugins").mkdir()
    return somewhere


@pytest.mark.parametrize("name", ["aaa", "zzz"])
def test_in_the_repository_one_file_gets_one_line(workspace: Path, name: str) -> None:
    text = (workspace / "pyproject.toml").read_text()
    assert 0 == main(["new", name])
    lines = (workspace / "pyproject.toml").read_text().splitlines()
    (added,) = [line for line in lines if line not in text.splitlines()]
    assert f'  "plugins/{name}/src",' == added
    assert [line for line in lines if line != added] == text.splitlines()
    paths = [line for line in lines if line.startswith('  "plugins/') and "*" not in line]
    assert sorted(paths) == paths
    before = below(workspace)
    assert 0 == main(["new", "other", f"--directory={workspace.parent / 'own'}"])
    assert before == below(workspace), "it is left alone"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('  "plugins/', '"', "mypy_path has no line like"),
        ("plugins/gopher/src", "plugins/lamp/src", "plugins/lamp/src already"),
    ],
)
def test_a_repository_without_a_place_for_the_lines_is_left_as_it_is(
    workspace: Path,
    old: str,
    new: str,
    problem: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = workspace / "pyproject.toml"
    path.write_text(path.read_text().replace(old, new))
    before = contents(workspace)
    for words in (["new", "lamp"], ["new", "lamp", "--dry-run"]):
        assert 2 == main(words)
        assert problem in capsys.readouterr().err
    assert before == contents(workspace)


def test_a_folder_that_is_no_project_is_no_repository_of_the_framework(somewhere: Path) -> None:
    for name, text in {"lamp": "this is [ not TOML", "fan": "project = 1"}.items():
        (somewhere / "pyproject.toml").write_text(text)
        assert 0 == main(["new", name])
        assert (somewhere / name / "Dockerfile").is_file()


def test_a_directory_that_is_gone_is_told(
    somewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    somewhere.rmdir()
    assert 2 == main(["new", "lamp"])
    expected = "the current directory: No such file or directory; nothing was created"
    assert expected in capsys.readouterr().err
