"""What a selector of CEL chooses, what is an error for a device, and what is refused."""

import pytest

from deviceplugin_testing.simulator._control_plane.selectors import (
    Candidate,
    SelectorError,
    parse_selector,
)

DEVICE = {
    "attributes": {
        "name": {"string": "Gopher A1"},
        "x.io/size": {"int": 3},
        "fast": {"bool": True},
        "version": {"version": "580.95.5"},
        "example.com/name": {"string": "other"},
    },
    "capacity": {"memory": {"requestPolicy": {"default": "1Gi"}, "value": "40Gi"}},
    "allowMultipleAllocations": True,
}
CANDIDATE = Candidate("gopher.io", DEVICE)
OURS = 'device.attributes["gopher.io"]'
MEMORY = 'device.capacity["gopher.io"].memory'


@pytest.mark.parametrize(
    "expression",
    [
        "device.driver == 'gopher.io' && device.allowMultipleAllocations",
        f"{OURS}.name == 'Gopher A1' && device.attributes['example.com'].name == 'other'",
        f"{OURS}['name'].startsWith('Go') && {OURS}.name.endsWith('1')",
        f"{OURS}.name.contains('r') && {OURS}.name.upperAscii() == 'GOPHER A1'",
        rf"{OURS}.name.lowerAscii().matches('^gopher\\s') && {OURS}.name.matches(r'\d$')",
        "(device.attributes['x.io'].size == 4 ||\n device.attributes['x.io'].size >= 3)",
        "device.attributes['x.io'].size in [2, 3] && device.attributes['x.io'].size > -1",
        f"!({OURS}.name == 'x') && {OURS}.fast && !!{OURS}.fast && 'name' in {OURS}",
        f"!([1] in {OURS})",
        f"has({OURS}.name) && !has({OURS}.other) && !has(device.attributes['absent.io'].name)",
        f"{MEMORY}.compareTo(quantity('40960Mi')) == 0 && {MEMORY}.isLessThan(quantity('41Gi'))",
        f"{OURS}.version.isGreaterThan(semver('535.0.0')) && {OURS}.version.minor() == 95",
        f"{OURS}.version.compareTo(semver('v580.95.05', true)) == 0",
        "semver('1.0.0-rc.2').isLessThan(semver('1.0.0-rc.10'))",
        "semver('1.0.0-alpha').isLessThan(semver('1.0.0-rc'))",
        f"semver('1.0.0-9').isLessThan(semver('1.0.0-1{'0' * 30}'))",
        "semver('1.0.0-1').isLessThan(semver('1.0.0-a')) && semver('1.0.0-a+b') != semver('1.0.0')",
        # A value of another type is another value.
        f"{OURS}.name != 3 && {OURS}.version != '580.95.5' && {OURS}.fast != 1",
        f"!({OURS}.fast in [1]) && !(1 in [true]) && [1] != [true] && [1] == [1] && [1] != [1, 2]",
        "has(device.driver) && has(device.attributes) && false < true && 'a' < 'b'",
        r"!'٣'.matches('\\d')",
        # An error counts only if nothing else decides.
        f"{OURS}.absent == 1 || true",
        f"!({OURS}.absent == 1 && false)",
        r"""'a\n\"\\' == "a\n\"\\" """,
        " && ".join(["true"] * 1000),
    ],
)
def test_a_selector_is_true(expression: str) -> None:
    assert parse_selector(expression)(CANDIDATE)
    assert not parse_selector(f"!({expression})")(CANDIDATE)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f"{OURS}.absent == 1", "no such key: absent"),
        (f"{OURS}.absent == 1 && true", "no such key: absent"),
        ("device.attributes['absent.io'].name == ''", "no such key: name"),
        (f"{OURS}.name.x == 1", "no such key: x"),
        (f"{OURS}[[1]] == 1", "no such key"),
        ("device == 1", "no such key: device"),
        (f"{OURS}.name", "must be true or false"),
        (f"{OURS}.name && true", "must be true or false"),
        (f"{OURS}.name > 3", "no such overload"),
        (f"{OURS}.fast.startsWith('x')", "no such overload: startsWith"),
        (f"{OURS}.name.startsWith(3)", "no such overload: startsWith"),
        (f"{OURS}.name.matches('(')", "no such overload: matches"),
        (rf"{OURS}.name.matches(r'(G)\1')", "no such overload: matches"),
        (f"{OURS}.name.matches('(?=G)')", "no such overload: matches"),
        (f"'{'a' * 40}'.matches('(a+)+b')", "not simulated"),
        (f"'{'a' * 64}'.matches('{'a*' * 6}b')", "not simulated"),
        (f"'{'a' * 65}'.matches('a')", "not simulated"),
        (f"{OURS}.name.startsWith('o', 1)", "no such overload: startsWith"),
        (f"{MEMORY} >= quantity('1Gi')", "no such overload"),
        ("semver('1.0.0') < semver('2.0.0')", "no such overload"),
        ("[1] < [2]", "no such overload"),
        (f"{OURS}.driver == 1", "no such key: driver"),
        (f"'a' in {OURS}.name", "no such overload"),
        (f"{MEMORY}.compareTo(semver('1.0.0')) == 0", "no such overload: compareTo"),
        (f"{MEMORY}.compareTo(quantity('x')) == 0", "no such overload: quantity"),
        (f"{OURS}.version.compareTo(semver('580.95.05')) == 0", "no such overload: semver"),
        (f"{OURS}.version.compareTo(semver('x', true)) == 0", "no such overload: semver"),
        *(
            (f"semver({one}).major() == 1", "no such overload: semver")
            for one in ("'1.0.0-a..b'", "'1.0.0-01'", "'1.0.0', 'x'", "1")
        ),
        *(
            (f"quantity({one}) == 1", "no such overload: quantity")
            for one in ("1", "' 1'", "'1e99999999'")
        ),
    ],
)
def test_what_does_not_fit_a_device_is_an_error(expression: str, problem: str) -> None:
    with pytest.raises(SelectorError, match=problem):
        parse_selector(expression)(CANDIDATE)


@pytest.mark.parametrize(
    "expression",
    [
        *("", "device.foo == 1", "device.driver == 1", "other == 1", "true ? 1 : 2", "1 + 1 == 2"),
        *("1 < 2 < 3", "true and true", "True", "not true", "null == 1", "08 == 8", "1.5 == 1.5"),
        *("__import__('os')", "has(1)", "has()", "device.attributes.map(x, x)", "-'a' == 1"),
        *("'a' 'b' == 'ab'", "99999999999999999999 == 1"),
        *("size('a') == 1", r"'\d' == 'd'", "'a", "f'{1}' == '1'", "lambda: 1", "{1: 2} == 1"),
        *("true; true", "true # x", "(x := 1) == 1", "[*[1]] == 1", "quantity('1', a=1) == 1"),
        *("(" * 300 + "true" + ")" * 300, "!" * 101 + "true", "[" * 150 + "]" * 150 + " == 1"),
    ],
)
def test_what_is_not_simulated_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="not simulated"):
        parse_selector(expression)
