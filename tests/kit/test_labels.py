"""Labels of the node, for Node Feature Discovery."""

import errno
from pathlib import Path

import pytest

import deviceplugin as dp
from deviceplugin.kit.labels import checked, clean, key, publish, update

STAMP = "nvidia.com/gfd.timestamp"
ONE = {"amd.com/gpu.vram": "48G"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "features.d" / "gpu"


# What Kubernetes takes.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Tesla T4", "Tesla-T4"),
        (" (R) a/b ", "R-ab"),
        ("x" * 70, "x" * 63),
        (f"{'x' * 62}-y", "x" * 62),
        ("Größe", "Gre"),
        ("a\nb=c", "abc"),
        ("-._", ""),
        ("", ""),
    ],
)
def test_values_are_made_such_as_labels_may_have(text: str, expected: str) -> None:
    assert expected == clean(text)


def test_names_are_made_of_parts() -> None:
    assert "amd.com/gpu.product-name.AMD_Instinct_MI300X_OAM" == key(
        "amd.com", "gpu.product-name", "AMD Instinct (MI300X) OAM"
    )
    assert "gpu.intel.com/device-id.0300-56c0.count" == key(
        "gpu.intel.com", "device-id", "0300-56c0", "count"
    )
    assert f"amd.com/gpu.{'x' * 59}" == key("amd.com", "gpu", "()", "x" * 80)


def test_labels_that_are_valid_are_kept() -> None:
    labels = {
        "a": "",
        "amd.com/gpu.vram": "48G",
        "x" * 63: "x" * 63,
        f"{'d' * 63}.{'e' * 63}/A_b.c-1": "0",
    }
    assert (labels, []) == checked(labels)


RULE = (
    "is not 63 characters or fewer of letters, digits, '-', '_' and '.', "
    "with a letter or digit at both ends"
)


LONG = ".".join(["d" * 63] * 4)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        *((name, "1", f"its name {RULE}") for name in ("", "a/", "a" * 64, "a\n")),
        *(
            (f"{domain}/b", "1", f"{domain!r} is not a domain such as example.com")
            for domain in ("a/b", "", "A.com", LONG)
        ),
        *(("a", value, f"value {value!r} {RULE}") for value in ("b c", "b\nc=d", "x" * 64, "-")),
    ],
)
def test_a_label_that_is_not_valid_is_left_out_with_the_reason(
    name: str, value: str, problem: str
) -> None:
    assert (ONE, [f"label {name!r}: {problem}"]) == checked({name: value, **ONE})


# The file.


def test_the_file_has_the_valid_labels_in_order(path: Path) -> None:
    assert publish(path, {"b": "2", "a": "1", "c": "not valid"})
    assert "a=1\nb=2\n" == path.read_text()
    assert not publish(path, {"a": "1", "b": "2"})


def test_the_stamp_says_when_labels_changed(path: Path) -> None:
    assert publish(path, {"nvidia.com/gpu.count": "2"}, stamp=STAMP, wall=lambda: 1000.4)
    assert f"{STAMP}=1000\nnvidia.com/gpu.count=2\n" == path.read_text()
    assert not publish(path, {"nvidia.com/gpu.count": "2"}, stamp=STAMP, wall=lambda: 2000)
    assert f"{STAMP}=1000\nnvidia.com/gpu.count=2\n" == path.read_text()
    assert publish(path, {"nvidia.com/gpu.count": "3"}, stamp=STAMP, wall=lambda: 3000)
    assert f"{STAMP}=3000\nnvidia.com/gpu.count=3\n" == path.read_text()


def test_what_somebody_else_has_written_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"amd.com/gpu.vram=16G\n\xff")
    assert publish(path, ONE, stamp=STAMP, wall=lambda: 7)
    assert f"{STAMP}=7\namd.com/gpu.vram=48G\n" == path.read_text()


@pytest.mark.parametrize("stamp", ["", STAMP])
def test_without_labels_there_is_no_file(path: Path, stamp: str) -> None:
    assert not publish(path, {}, stamp=stamp)
    assert publish(path, ONE, stamp=stamp)
    assert publish(path, {"not valid": "1"}, stamp=stamp)
    assert not path.exists()
    assert not publish(path, {}, stamp=stamp)


def test_a_file_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "gpu"
    with pytest.raises(dp.DiscoveryError) as caught:
        publish(path, ONE)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(": mount its directory from the host, writable")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno in {errno.EEXIST, errno.ENOTDIR}


def test_what_keeps_labels_from_being_written_is_returned_for_the_log(tmp_path: Path) -> None:
    assert [] == update(None, ONE)
    path = tmp_path / "labels"
    unfit = {**ONE, "-": "1"}
    (problem,) = update(path, unfit)
    assert problem.startswith("label '-': its name is not")
    assert "amd.com/gpu.vram=48G\n" == path.read_text()
    (problem,) = update(path / "below", ONE)
    assert problem.startswith(f"{path}/below: ")
