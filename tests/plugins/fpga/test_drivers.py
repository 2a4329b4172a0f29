"""What a look at sysfs finds, with both drivers."""

import errno
import os
from pathlib import Path

import pytest

from deviceplugin.kit.sysfs import Sysfs, SysfsError
from deviceplugin_fpga import drivers
from deviceplugin_fpga.drivers import Found, NoDriverError, look
from deviceplugin_testing.fixture import FailingKernel
from fpga.trees import AFU, DFL, INTERFACE, OPAE, FpgaTree

OTHER = "bfac4d851ee856fe8c95865ce1bbaa2d"


def names(found: Found) -> dict[str, list[str]]:
    """Return the FMEs and their ports, by name and without the driver's prefix."""
    return {
        fme.name.split("-")[-1]: [port.name.split("-")[-1] for port in fme.ports]
        for fme in found.fmes
    }


# Which driver.


def test_opae_is_looked_for_first(tmp_path: Path) -> None:
    FpgaTree(tmp_path, DFL).simple(AFU)
    assert drivers.DFL is drivers.choose(Sysfs(tmp_path / "sys"))
    FpgaTree(tmp_path, OPAE)
    assert drivers.OPAE is drivers.choose(Sysfs(tmp_path / "sys"))


def test_without_a_driver_the_folders_that_were_tried_are_told(tmp_path: Path) -> None:
    with pytest.raises(NoDriverError) as caught:
        look(Sysfs(tmp_path))
    assert (
        f"kernel driver is not loaded: neither {tmp_path}/class/fpga nor "
        f"{tmp_path}/class/fpga_region exists" == str(caught.value)
    )


# What there is.


def test_a_card_has_an_fme_with_a_port(any_tree: FpgaTree) -> None:
    region = any_tree.region(any_tree.card())
    any_tree.fme(region, 0, f"  {INTERFACE.upper()}\t")
    port = any_tree.port(region, 0, f" {AFU.upper()} \n")
    found = look(any_tree.sysfs)
    assert ({"fme.0": ["port.0"]}, {}) == (names(found), found.problems)
    (fme,) = found.fmes
    assert INTERFACE == fme.interface_id
    assert (port, AFU, 0) == (fme.ports[0].folder, fme.ports[0].afu_id(), fme.ports[0].number())
    assert "0000:3b:00.0" == fme.ports[0].card.name


def test_cards_and_ports_are_in_natural_order(any_tree: FpgaTree) -> None:
    for number, address in ((10, "10000:01:00.0"), (2, "0000:02:00.0")):
        any_tree.simple(*[AFU] * 11, address=address, number=number)
        (any_tree.sys / f"devices/pci0000:3a/{address}/vendor").write_text("0x1172\n")
    found = names(look(any_tree.sysfs))
    assert ["fme.2", "fme.10"] == list(found)
    assert [f"port.{20 + index}" for index in range(11)] == found["fme.2"]


def test_two_fmes_on_one_card_have_their_own_ports(any_tree: FpgaTree) -> None:
    card = any_tree.card()
    for number in (0, 1):
        region = any_tree.region(card, number)
        any_tree.fme(region, number)
        any_tree.port(region, number)
    assert {"fme.0": ["port.0"], "fme.1": ["port.1"]} == names(look(any_tree.sysfs))
    virtual = any_tree.card("0000:3b:00.1", physical=card)  # which of them has its port?
    any_tree.port(any_tree.region(virtual, 2), 7)
    words = any_tree.words
    text = f"0000:3b:00.1: one FME is needed for {words.port}7, found: {words.fme}0, {words.fme}1"
    assert {text: {f"{words.port}7"}} == look(any_tree.sysfs).problems


def test_virtual_functions_have_the_fme_of_the_physical_one(any_tree: FpgaTree) -> None:
    physical = any_tree.card()
    region = any_tree.region(physical, 0)
    any_tree.fme(region)
    any_tree.port(region, 0)
    for number in (1, 2):
        virtual = any_tree.card(f"0000:3b:00.{number}", physical=physical)
        any_tree.port(any_tree.region(virtual, number), number)
    found = look(any_tree.sysfs)
    assert {"fme.0": ["port.0", "port.1", "port.2"]} == names(found)
    addresses = [port.card.name for port in found.fmes[0].ports]
    assert ["0000:3b:00.0", "0000:3b:00.1", "0000:3b:00.2"] == addresses


@pytest.mark.parametrize("odd", ["dir", "regionX", "region", "intel-fpga-devX0", "xregion0"])
def test_entries_of_other_names_are_none_of_ours(any_tree: FpgaTree, odd: str) -> None:
    (any_tree.classes / odd).mkdir()
    region = any_tree.region(any_tree.card())
    any_tree.fme(region)
    for name in ("dfl-portX0", "intel-fpga-portX0", "dfl-port.", "dfl-port.0x", "dir"):
        (region / name).mkdir()
    assert ({}, {}) == (names(look(any_tree.sysfs)), look(any_tree.sysfs).problems)


# What is odd is skipped, and the others are not harmed.


def skipped(tree: FpgaTree) -> dict[str, list[str]]:
    """Return what was skipped and what it is about; a good card must have been found."""
    tree.simple(AFU, address="0000:ff:00.0", number=99)
    found = look(tree.sysfs)
    assert {"fme.99": ["port.990"]} == names(found)
    return {text: sorted(about) for text, about in found.problems.items()}


@pytest.mark.parametrize(
    ("attribute", "value", "expected"),
    [
        ("class", "0x020000", "PCI class '0x020000' is not 0x120000"),
        ("class", "x" * 5000, f"PCI class '{'x' * 40}' is not 0x120000"),
        ("class", None, "PCI class '' is not 0x120000"),
        ("vendor", "", "no vendor"),
        ("device", None, "no device"),
    ],
)
def test_a_card_that_is_no_fpga_is_skipped_once(
    any_tree: FpgaTree, attribute: str, value: str | None, expected: str
) -> None:
    any_tree.simple(AFU, AFU)
    path = any_tree.sys / "devices/pci0000:3a/0000:3b:00.0" / attribute
    path.unlink()
    if value is not None:
        path.write_text(value)
    prefix = any_tree.words.port
    assert {f"0000:3b:00.0: {expected}": [f"{prefix}0", f"{prefix}1"]} == skipped(any_tree)


@pytest.mark.parametrize(
    ("interface", "shown"),
    [
        ("", "an empty value"),
        ("../../etc", "'../../etc'"),
        (INTERFACE[:-1], f"'{INTERFACE[:-1]}'"),
        (f"{INTERFACE}00", f"'{INTERFACE}00'"),
    ],
)
def test_an_interface_id_that_is_none_skips_the_fme(
    any_tree: FpgaTree, interface: str, shown: str
) -> None:
    region, words = any_tree.region(any_tree.card()), any_tree.words
    any_tree.fme(region, 0, interface)
    any_tree.port(region)
    of_dfl = "dfl-fme-region.0/fpga_region/region100/compat_id"
    attribute = of_dfl if words is DFL else "pr/interface_id"
    expected = f"{words.fme}0: {attribute}: {shown} is not an id of 32 hex digits"
    assert {expected: [f"{words.fme}0", f"{words.port}0"]} == skipped(any_tree)


def test_an_fme_without_an_interface_id_is_skipped(any_tree: FpgaTree) -> None:
    region = any_tree.region(any_tree.card())
    attribute = "compat_id" if any_tree.words is DFL else "interface_id"
    next(any_tree.fme(region).rglob(attribute)).unlink()
    any_tree.port(region)
    words = any_tree.words
    assert {f"{words.fme}0: no interface id": [f"{words.fme}0", f"{words.port}0"]} == skipped(
        any_tree
    )


def test_regions_of_one_interface_are_not_ambiguous(tree: FpgaTree) -> None:
    for number, other in enumerate((INTERFACE, OTHER)):
        region = tree.region(tree.card(f"0000:3b:0{number}.0"), number)
        tree.fme(region, number, INTERFACE, other)
        tree.port(region, number)
    found = look(tree.sysfs)
    assert [("dfl-fme.0", INTERFACE)] == [(fme.name, fme.interface_id) for fme in found.fmes]
    text = f"dfl-fme.1: several interface ids: {OTHER}, {INTERFACE}"
    assert {text: {"dfl-fme.1", "dfl-port.1"}} == found.problems


def test_a_port_that_is_not_where_ports_are_is_skipped(any_tree: FpgaTree) -> None:
    card, words = any_tree.card(), any_tree.words
    any_tree.port(any_tree.region(card), 0)  # without an FME
    region = any_tree.region(any_tree.card("0000:5e:00.0"), 1)
    fme = any_tree.fme(region, 1)
    (region / f"{words.port}1").symlink_to(fme)
    virtual = any_tree.card("0000:3b:00.1", physical=Path("/nowhere"))
    any_tree.port(any_tree.region(virtual, 2), 2)
    elsewhere = any_tree.sys / "devices/virtual"
    elsewhere.mkdir()
    any_tree.port(any_tree.region(elsewhere, 3), 3)
    kind = "DFL" if words is DFL else "OPAE"
    assert {
        f"0000:3b:00.0: one FME is needed for {words.port}0, found: none": [f"{words.port}0"],
        f"{fme.name}: not a port of the {kind} driver": [f"{words.port}1"],
        f"{virtual}/physfn: a broken link": [f"{words.port}2"],
        f"{words.port}3: not on a PCI device": [f"{words.port}3"],
    } == skipped(any_tree)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("nowhere", "a broken link"),
        ("{0}", "a loop of links"),
        ("/proc", "leads out of {1}"),
        ("{1}/devices", ""),
        ("{1}/file", "Not a directory"),
    ],
)
def test_a_link_that_leads_astray_is_skipped(
    any_tree: FpgaTree, target: str, expected: str
) -> None:
    file = any_tree.sys / "file"
    file.touch()
    entry = any_tree.classes / f"{any_tree.words.region}5"
    entry.symlink_to(target.format(entry.name, any_tree.sys))
    where = file if expected.startswith("Not") else entry
    text = f"{where}: {expected.format(entry.name, any_tree.sys)}" if expected else ""
    assert {text} - {""} == set(skipped(any_tree))


def test_a_class_that_vanishes_during_a_look_is_told(
    tree: FpgaTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.unload()
    monkeypatch.setattr(drivers, "choose", lambda _: drivers.DFL)
    text = f"{tree.sys}/class/fpga_region: No such file or directory"
    assert {text: set()} == look(tree.sysfs).problems


def test_an_attribute_that_cannot_be_read_is_told(tree: FpgaTree) -> None:
    (port,) = tree.simple(AFU)
    kernel = FailingKernel()
    (found,) = look(Sysfs(tree.sys, kernel)).fmes[0].ports
    (port / "afu_id").unlink()
    os.mkfifo(port / "afu_id")  # which is not waited for
    with pytest.raises(SysfsError, match="an empty value is not an id"):
        found.afu_id()
    kernel.faults[port / "afu_id"] = errno.EIO
    with pytest.raises(SysfsError, match=rf"{port}/afu_id: Input/output error"):
        found.afu_id()


@pytest.mark.parametrize("text", ["", "x", "-1", "4294967296"])
def test_a_port_number_that_is_none_is_told(tree: FpgaTree, text: str) -> None:
    (port,) = tree.simple(AFU)
    (port / "id").write_text(text)
    (found,) = look(tree.sysfs).fmes[0].ports
    with pytest.raises(SysfsError, match=rf"dfl-port\.0: id: '{text}' is not a number"):
        found.number()
