"""The plugin's process: what is told of its end."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from deviceplugin_testing.conformance import Limits, Subject, _process
from deviceplugin_testing.conformance._check import Failed
from deviceplugin_testing.conformance._node import PluginNode
from deviceplugin_testing.conformance._process import Plugin
from deviceplugin_testing.simulator import StubPlugin
from patience import PATIENCE

NAMES = ("plugin_dir", "pod_resources_socket", "registry_dir", "http_address")
DUMP = [
    "",
    "goroutine 1 [running]:",
    *(f"main.f{number}(0x1)\n\t/src/main.go:{number} +0x1d" for number in range(40)),
    "created by main.main in goroutine 1",
    "\t/src/main.go:7 +0x85",
    "exit status 2",
]
TAIL = "created by main.main in goroutine 1 | /src/main.go:7 +0x85 | exit status 2"


def last_words(lines: Sequence[str], output: Path) -> str:
    text = output.with_name("text")
    text.write_text("".join(f"{line}\n" for line in lines))
    plugin = Plugin(["cat", str(text)], placeholders=dict.fromkeys(NAMES, ""), output=output)
    plugin._process.wait(30)
    return plugin.last_words()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("panic: runtime error: index out of range [3] with length 3", ""),
        ("fatal error: all goroutines are asleep - deadlock!", ""),
        ("F1122 06:54:54.123456       1 main.go:42] no devices", ""),
        ('{"level":"fatal","msg":"no devices"}', ""),
        ('time="06:54" level=FATAL msg="no devices"', ""),
        ("\tpanic: " + "x" * 5000, "panic: " + "x" * 293 + "..."),
    ],
)
def test_the_line_that_says_why_a_plugin_in_go_ended_is_shown(
    line: str, shown: str, tmp_path: Path
) -> None:
    told = last_words(["starting", line, *DUMP], tmp_path / "output")
    assert f"{shown or line} | ... | {TAIL}" == told


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], ""),
        (["no device"], "no device"),
        ([*"abcd"], "b | c | d"),
        (["not fatally"], "not fatally"),
        (["panic: first", "\tpanic: second [recovered]", *DUMP], f"panic: first | ... | {TAIL}"),
        (["one", "panic: two", "", "goroutine 1:"], "one | panic: two | goroutine 1:"),
        # However much was written after it.
        (["panic: early", *["-"] * 100_000, *DUMP], f"panic: early | ... | {TAIL}"),
    ],
)
def test_the_cause_is_shown_once_and_before_the_last_lines(
    lines: Sequence[str], told: str, tmp_path: Path
) -> None:
    assert told == last_words(lines, tmp_path / "output")


def test_what_a_process_before_it_wrote_is_not_its_last_words(tmp_path: Path) -> None:
    output = tmp_path / "output"
    last_words(["panic: before"], output)
    assert "no device" == last_words(["no device"], output)
    assert "" == last_words([], output)


def test_a_plugin_that_was_killed_may_be_gone_before_the_kubelet_notices() -> None:
    subject = Subject(command=["true"], resource="x.io/dev")
    with subject.place() as place, ThreadPoolExecutor(1) as pool:
        node = PluginNode(subject, place, Limits(within=PATIENCE), 1, Event())
        node.kubelet.start()
        stub = StubPlugin(node.kubelet.plugin_dir, "x.io/dev", ["a"])  # what the kubelet sees
        try:
            with stub:
                node.kubelet.wait_for("x.io/dev", {"a"})
                node.launch()._process.wait(PATIENCE)
                with pytest.raises(Failed, match="ended with status 0"):
                    node.observe(PATIENCE)
                gone = pool.submit(node.await_gone)
            assert gone.result(PATIENCE) is None
            assert "x.io/dev" not in node.kubelet.registered
        finally:
            node.close()


def test_where_the_kernel_tells_less_a_process_is_measured_by_what_it_tells(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    fields = " ".join(str(number) for number in range(3, 53)).split()
    fields[11:13] = [str(2 * ticks), str(ticks)]  # user and system
    (tmp_path / "stat").write_text(f"7 (odd) name) {' '.join(fields)}\n")
    assert 3_000_000_000 == _process._cpu(tmp_path)
    (tmp_path / "schedstat").write_text("1234 5 6\n")
    assert 1234 == _process._cpu(tmp_path)
    assert (0, 0, 0) == _process._sizes(tmp_path / "smaps_rollup")
