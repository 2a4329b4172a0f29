"""The picture of the architecture is the code's."""

import re

import pytest

import architecture


def test_the_picture_is_what_the_code_imports() -> None:
    page = architecture.PAGE.read_text()
    assert architecture.drawn(page) == page, "out of date: run make generate"


def test_each_package_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(_\w+(?:/\w+)*)`", architecture.PAGE.read_text()))
    assert len(named) > 8
    assert [] == [name for name in sorted(named) if not (architecture.CORE / name).is_dir()]


def test_each_of_several_methods_of_one_name_is_measured() -> None:
    code = """
class Long:
    def __init__(self):
        self.a = 1
        self.b = 2

class Short:
    async def __init__(self): ...
"""
    assert {"3: __init__": 3, "8: __init__": 1} == architecture.lengths(code)


def test_no_module_has_more_than_300_lines() -> None:
    assert {} == {name: lines for name, lines in architecture.modules().items() if lines > 300}


@pytest.mark.slow
def test_no_function_has_more_than_60_lines() -> None:
    assert {} == {name: lines for name, lines in architecture.functions().items() if lines > 60}


def test_no_folder_has_more_than_30_modules() -> None:
    assert {} == {name: count for name, count in architecture.folders().items() if count > 30}
