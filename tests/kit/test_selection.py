"""Which devices are chosen by patterns."""

from collections.abc import Sequence

import pytest

from deviceplugin.kit.selection import Selection

NAMES = ("0000:3b:00.0", "56c0")


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), True),
        (["0000:3b:*"], (), True),
        (["56c0"], (), True),
        (["56C0"], (), False),
        (["56c"], (), False),
        (["56c1", "56c?"], (), True),
        ((), ["0000:3b:00.[01]"], False),
        (["56c0"], ["0000:3b:00.0"], False),
        (["56c1"], ["0000:04:*"], False),
    ],
)
def test_a_device_is_chosen_by_any_of_its_names(
    include: Sequence[str], exclude: Sequence[str], expected: bool
) -> None:
    assert expected == Selection(include, exclude).has(iter(NAMES))
