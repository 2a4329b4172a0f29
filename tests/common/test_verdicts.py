"""Verdicts of all tools look the same, and are written in one place."""

from pathlib import Path

import deviceplugin.tools
from deviceplugin.tools._command_line import Line, Tone

NOTES = [("means", "no pod\n  starts"), ("do", ""), ("see", "a page")]


def test_a_verdict_is_a_line_with_what_follows_below_it() -> None:
    line = Line("fail", Tone.BAD, "disk", "it  is\nfull", NOTES)
    expected = [
        "  fail     disk  it is full",
        "           means: no pod starts",
        "           see:   a page",
    ]
    assert expected == line.show((7, 4), colour=False, indent="  ").splitlines()


def test_only_the_verdict_has_a_colour() -> None:
    shown = Line("ok", Tone.GOOD, "disk", "free").show((4, 5), colour=True)
    assert "\x1b[32mok  \x1b[0m  disk   free" == shown


def test_no_command_makes_colours_or_json_by_itself() -> None:
    own = {
        str(path.relative_to(folder))
        for folder in map(Path, deviceplugin.tools.__path__)
        for path in folder.glob("*/*.py")
        if "x1b" in path.read_text() or "json.dumps" in path.read_text()
    }
    assert {"events/_notice.py"} == own  # for a hash
