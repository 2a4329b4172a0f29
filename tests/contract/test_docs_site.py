"""The documentation site has all pages, and the README's picture is of the demo as it is."""

import html
import json
import os
import re
import shutil
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import docs_site
import terminal
import versions

ROOT = Path(__file__).parents[2]
HOME = "https://git.example.com/hw/plugins"


def entries(menu: Any) -> list[str]:
    """Return the pages of a menu."""
    if isinstance(menu, str):
        return [menu]
    return [page for one in menu for value in one.values() for page in entries(value)]


def test_the_menu_has_every_page_of_the_map_and_every_plugin() -> None:
    menu = [*docs_site.navigation()]
    found = entries(menu)
    assert sorted(set(found)) == sorted(found)
    found.remove(docs_site.REFERENCE)  # which is made
    assert [] == [page for page in found if not (ROOT / page).is_file()]
    own = {str(path.relative_to(ROOT)) for path in ROOT.glob("common/docs/*.md")}
    assert set() == own - set(found)
    assert {
        f"plugins/{path.parent.name}/README.md" for path in ROOT.glob("plugins/*/README.md")
    } < {*found}


def test_every_page_of_the_repository_is_on_the_site() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert [] == sorted({*listed} - {str(page) for page in docs_site.pages()} - {NO_PAGE})


NO_PAGE = ".github/pull_request_template.md"


@pytest.mark.parametrize(
    ("text", "home", "expected"),
    [
        ("[a](deploying.md#x)", "", "[a](deploying.md#x)"),
        ("[a](https://x.example.com/a)", "", "[a](https://x.example.com/a)"),
        ("[a](../../plugins/gpu)", "", "[a](../../plugins/gpu/README.md)"),
        ("[a](../../build/chart.py)", "", "[a](../../build/chart.py)"),
        ("[a](../../build/chart.py#L1)", HOME, f"[a]({HOME}/blob/v0.1.0/build/chart.py#L1)"),
        ("[a](../../tests/chart)", HOME, f"[a]({HOME}/blob/v0.1.0/tests/chart)"),
        ("[a](../../tests/chart)", "", "[a](#)"),
        ("![a](page.png)", HOME, "![a](page.png)"),
        ("[a](nowhere.md)", "", "[a](nowhere.md)"),
        ("```\n[a](b)\n```\n[b](../node)", "", "```\n[a](b)\n```\n[b](../node/README.md)"),
    ],
)
def test_a_link_leads_to_a_page_or_a_file(
    text: str, home: str, expected: str, tmp_path: Path
) -> None:
    page, known = Path("common/docs/x.md"), set(docs_site.pages())
    assert expected == docs_site.relink(text, page, known, tmp_path, home)
    copied = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert copied == {"chart.py"} & {*re.findall(r"chart\.py", "" if home else text)} | {
        *re.findall(r"page\.png", text)
    }


def test_the_selector_has_each_version_and_the_first_page_leads_to_the_newest(
    tmp_path: Path,
) -> None:
    for name in ("0.9.0", "0.10.0", "0.10.0rc1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitemap.xml").touch()
    (tmp_path / "assets").mkdir()  # of whoever serves it
    docs_site.list_versions(tmp_path)
    listed = json.loads((tmp_path / docs_site.VERSIONS).read_text())
    assert ["0.10.0", "0.10.0rc1", "0.9.0"] == [one["version"] for one in listed]
    for one in listed:
        assert {"version", "title", "aliases"} == set(one)  # what the theme reads
    assert 'url=0.10.0/"' in (tmp_path / "index.html").read_text()


def test_a_page_knows_of_versions_and_of_its_address_and_links_count(tmp_path: Path) -> None:
    docs_site.write(tmp_path, HOME, "https://docs.example.com/plugins")
    text = (tmp_path / "mkdocs.yml").read_text()
    assert docs_site.SLUGS in text
    found = yaml.safe_load(text.replace(docs_site.SLUGS, "slugs"))
    links = found["validation"]["links"]
    assert {"not_found": "warn", "anchors": "warn", "unrecognized_links": "warn"} == links
    assert HOME == found["repo_url"]
    assert "mike" == found["extra"]["version"]["provider"]
    assert f"https://docs.example.com/plugins/{versions.current()}/" == found["site_url"]
    search, reference = found["plugins"]
    assert ("search", ["mkdocstrings"]) == (search, [*reference])
    for file in (*found["extra_css"], "common/docs/page.png"):
        assert (tmp_path / "docs" / file).is_file()
    assert docs_site.REFERENCE in entries(found["nav"])
    page = (tmp_path / "docs" / docs_site.REFERENCE).read_text()
    shown = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert {"deviceplugin", "deviceplugin.kit.usb", "deviceplugin_testing.fixture"} < {*shown}
    for name in shown:
        assert import_module(name).__doc__, name


def test_a_site_of_another_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[object]] = []

    def mkdocs(words: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        made.append(words)
        folder = Path(str(words[-1]))
        folder.mkdir(parents=True)
        (folder / "sitemap.xml").touch()
        return subprocess.CompletedProcess([], 0)

    monkeypatch.setattr(subprocess, "run", mkdocs)
    monkeypatch.setattr(docs_site, "write", lambda *_: None)
    for name in ("1.2.3", "1.3.0"):
        monkeypatch.setattr(docs_site, "current", lambda name=name: name)
        assert 0 == docs_site.main([str(tmp_path / "site")])
    found = {path.name for path in (tmp_path / "site").iterdir()}
    assert {"1.2.3", "1.3.0", "versions.json", "index.html"} == found


def test_a_site_that_cannot_be_made_is_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = subprocess.CompletedProcess[str]([], 1)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    monkeypatch.setattr(docs_site, "write", lambda *_: None)
    assert 1 == docs_site.main([str(tmp_path)])
    assert [] == [*tmp_path.iterdir()]


def test_ci_makes_the_site_strictly() -> None:
    assert "\n.venv/bin/python build/docs_site.py\n" in (ROOT / ".ci/run").read_text()
    assert '"--strict"' in Path(docs_site.__file__).read_text()


def words_of(picture: str) -> str:
    plain = re.sub(r"<[^>]+>", "", re.sub(r"</text>", "\n", picture))
    return html.unescape(plain).replace("\xa0", " ")


def test_the_picture_of_the_readme_is_of_the_demo_as_it_is() -> None:
    shown = words_of((ROOT / "demo/demo.svg").read_text())
    source = (ROOT / "demo/demo.py").read_text()
    steps = re.findall(r'^ {12}"(.+)": running\.\w+,$', source, re.MULTILINE)
    assert steps == re.findall(r"^\s*\d\. (.+?)\s*$", shown, re.MULTILINE)
    assert f"All {len(steps)} steps were as claimed" in shown
    claims = re.findall(r'check\(\s*"([^"{]+)"', source)
    assert 5 < len(claims)
    assert [] == [claim for claim in claims if claim not in shown]
    assert "](demo/demo.svg)" in (ROOT / "README.md").read_text()


def test_a_picture_shows_what_was_printed_in_its_colours_and_fetches_nothing() -> None:
    printed = "\033[1m1. A step\033[0m\n    \033[32mok\033[0m  it <holds>\n"
    made = terminal.picture(printed, "make x")
    assert "1. A step" in words_of(made)
    assert "ok\n  it <holds>" in words_of(made)
    assert "make x" in words_of(made)
    assert "font-weight: bold" in made
    assert "url(" not in re.sub(r"url\(#", "", made)
    assert made == terminal.picture(printed, "make x")


def test_a_demo_that_fails_makes_no_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "FOLDER", tmp_path / "demo")
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo/demo.py").write_text("raise SystemExit(1)")
    with pytest.raises(subprocess.CalledProcessError):
        terminal.main([])
    assert not (tmp_path / "demo/demo.svg").exists()


def site_step() -> str:
    """Return the script of the workflow that adds a version to the site."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    steps = workflow["jobs"]["publish-site"]["steps"]
    return next(str(step["run"]) for step in steps if "docs_site.py" in step.get("run", ""))


MAKE_SITE = """#!/bin/sh
test "$1" = build/docs_site.py || exit 9
mkdir -p "$2/$MADE" && echo "$*" > "$2/$MADE/words"
"""


def test_the_workflow_adds_each_version_to_the_branch_of_the_site(tmp_path: Path) -> None:
    def git(where: Path, *words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
        return subprocess.check_output(["git", *who, *words], cwd=where, text=True)

    origin, checkout, bin_ = tmp_path / "origin", tmp_path / "checkout", tmp_path / "bin"
    git(tmp_path, "-c", "init.defaultBranch=main", "init", "--quiet", "--bare", str(origin))
    bin_.mkdir()
    (bin_ / "gh").symlink_to("/bin/true")
    for made in ("0.1.0", "0.2.0"):
        shutil.rmtree(checkout, ignore_errors=True)
        git(tmp_path, "clone", "--quiet", str(origin), str(checkout))
        git(checkout, "commit", "--quiet", "--allow-empty", "--message", made)
        git(checkout, "push", "--quiet", "origin", "HEAD:main")
        python = checkout / ".venv/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(MAKE_SITE)
        python.chmod(0o755)
        environment = {
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "MADE": made,
            "GITHUB_SERVER_URL": "https://git.example.com",
            "GITHUB_REPOSITORY": "Hw/plugins",
            "GITHUB_REPOSITORY_OWNER": "Hw",
            "GITHUB_REF_NAME": f"v{made}",
        }
        words = ["bash", "-e", "-o", "pipefail", "-c", site_step()]
        subprocess.run(words, cwd=checkout, env=environment, check=True, capture_output=True)
    listed = git(origin, "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert [".nojekyll", "0.1.0/words", "0.2.0/words"] == listed
    home, site = "--home https://git.example.com/Hw/plugins", "--site https://hw.github.io/plugins"
    said = git(origin, "show", "gh-pages:0.2.0/words")
    assert f"build/docs_site.py site {home} {site}\n" == said
