"""The picture of the architecture is the code's."""

import architecture


def test_the_picture_is_what_the_code_imports() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.drawn(page) == page, "out of date: run build/architecture.py"
