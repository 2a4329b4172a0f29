"""Measure what the pages quote, ours beside peers', and write it to ``figures.json``.

    build/measures/figures.py --go PATH --squat PATH --nvidia PATH --dra-example PATH

``make generate`` makes the tables of the pages from it. A program that is not given is skipped.
It needs root: squat's plugin wants device nodes, and NVIDIA's the kubelet's own directory.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "common/docs/figures.json"
PAGE: Final = ROOT / "common/docs/performance.md"
RESOURCES: Final = (1, 100, 1000)
SOFT_LIMIT: Final = ("sh", "-c", 'ulimit -Sn 1024 && exec "$0" "$@"')
"""Of open files, as containerd starts containers."""
NAMESPACE: Final = (
    "mount -t tmpfs none /var/lib && mkdir -p /var/lib/kubelet/device-plugins && "
    'mount --bind "$0" /var/lib/kubelet/device-plugins && exec "$@"'
)
"""The kubelet's directory, which NVIDIA's plugin takes from nobody."""

Row = tuple[str, str, Callable[[Sequence[float]], float], float]
"""What the page says, how the figure of bench begins, what is taken of its values, times what."""
Measured = Mapping[str, Sequence[float]]
Table = Mapping[str, Any]

PLUGINS: Final[Sequence[Row]] = (
    ("resident memory, idle, MiB", "RSS idle", median, 1),
    ("resident after 1,000 allocations, MiB", "RSS after", median, 1),
    ("private memory, idle, MiB", "private idle", median, 1),
    ("private after 1,000 allocations, MiB", "private after", median, 1),
    ("start until registered, ms", "start to", min, 1),
    ("CPU time until then, ms", "CPU until registered", min, 1),
    ("Allocate of 1 device, ms", "Allocate of 1 device", min, 1e-3),
    ("device change until it is listed, ms", "device change", min, 1),
    ("kubelet restart until registered again, ms", "kubelet listening", min, 1),
    ("wake-ups a second, idle", "wake-ups", median, 1),
    ("CPU time of an idle hour, s", "CPU per idle minute", median, 0.06),
    ("threads", "threads idle", median, 1),
    ("open files", "descriptors idle", median, 1),
)
MANY: Final[Sequence[Row]] = (
    ("all registered, s", "start to", min, 1e-3),
    ("CPU time until then, s", "CPU until registered", min, 1e-3),
    ("resident memory, MiB", "RSS idle", median, 1),
    ("after 2 restarts of the kubelet, MiB", "RSS after", median, 1),
    ("private memory, MiB", "private idle", median, 1),
    ("threads", "threads idle", median, 1),
    ("open files", "descriptors idle", median, 1),
    ("kubelet restart until all are back, s", "kubelet listening", min, 1e-3),
)
DRA: Final[Sequence[Row]] = (
    ("start until devices are offered, ms", "start to devices", min, 1),
    ("CPU time until then, ms", "CPU until devices", min, 1),
    *((f"Prepare of {n}, ms", f"Prepare of {n} device", min, 1e-3) for n in (1, 8, 64)),
    ("CPU time of that, ms", "CPU of a Prepare of 64", min, 1e-3),
    ("Unprepare of 64, ms", "Unprepare of 64", min, 1e-3),
    ("resident memory after that, MiB", "RSS after", median, 1),
    ("private memory, MiB", "private after", median, 1),
    ("threads", "threads after", median, 1),
)


def pages() -> Mapping[Path, str]:
    """Return the page with the tables of the file."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in saved().items():
        begin, end = f"<!-- figures: {name} -->\n", "<!-- end -->"
        before, _, after = text.partition(begin)
        text = f"{before}{begin}{drawn(table)}\n{end}{after.partition(end)[2]}"
    return {PAGE: text}


def saved() -> dict[str, Table]:
    """Return the tables of the file."""
    found: dict[str, Table] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def drawn(table: Table) -> str:
    """Return a table in Markdown, and where and when it was measured."""
    rows = [["", *table["columns"]], ["---"] * (1 + len(table["columns"]))]
    rows += [[name, *map(cell, values)] for name, *values in table["rows"]]
    return (
        "\n".join(f"| {' | '.join(row)} |" for row in rows) + f"\n\nMeasured {table['measured']}."
    )


def cell(value: float | None) -> str:
    """Return a figure with at most three digits that mean something."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 10 else f"{value:.3g}"  # noqa: PLR2004


def table(rows: Sequence[Row], columns: Mapping[str, Measured]) -> Table:
    """Return what the file has of a table."""
    found = []
    for name, begin, chosen, factor in rows:
        cells: list[Any] = [name]
        for figures in columns.values():
            values = next((figures[one] for one in figures if one.startswith(begin)), None)
            cells.append(values and float(f"{chosen(values) * factor:.3g}"))
        found.append(cells)
    uname, python = os.uname(), ".".join(map(str, sys.version_info[:3]))
    measured = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {uname.machine}, load "
        f"{os.getloadavg()[0]:.0f}; Linux {uname.release.partition('-')[0]}, Python {python}, "
        f"grpcio {version('grpcio')}"
    )
    return {"measured": measured, "columns": [*columns], "rows": found}


def merged(sections: Sequence[Any]) -> Measured:
    """Return the values of all sections by the name of their figure."""
    values = defaultdict[str, list[float]](list)
    for figure in (one for section in sections for one in section.figures):
        values[figure.name] += figure.values
    return values


def plugins(options: argparse.Namespace) -> Table:
    """Measure one resource with 8 devices, all in turns."""
    from deviceplugin_testing.conformance._subject import scratch
    from deviceplugin_testing.tools.bench import _plan, _versus

    plan = (
        _plan.QUICK
        if options.quick
        else _plan.Plan(starts=8, idle=20, allocations=2000, changes=8, restarts=8, settle=2)
    )
    with scratch("dpf-") as folder:
        subjects = dict(each(options, folder))
        sections = _versus.alternate([*subjects.values()], plan, _say)
    return table(PLUGINS, {n: merged([one]) for n, one in zip(subjects, sections, strict=True)})


def each(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the plugins with 8 devices, by the heading of their column."""
    from deviceplugin_testing.tools.bench import _plan
    from deviceplugin_testing.tools.bench._subject import BenchSubject

    def subject(name: str, *command: str, entries: str = "") -> tuple[str, BenchSubject]:
        touch = "{devices_dir}" if entries else ""
        return name, BenchSubject(
            title=name, command=command, entries=entries or "file", touch=touch
        )

    yield "gopher", _plan.gopher()
    yield "bare Python", _plan.bare()
    if given(options, "go"):
        yield subject("least in Go", options.go, "--directory", "{devices_dir}", entries="file")
    glob = json.dumps({"name": "bench", "groups": [{"paths": [{"path": "{devices_dir}/*"}]}]})
    yield subject("generic", installed("generic"), f"--device={glob}", entries="node")
    if given(options, "squat"):
        yield subject("squat's generic", *squat(options.squat), f"--device={glob}", entries="node")
    wrapped = gpus(folder)
    yield subject("NVIDIA GPUs", *wrapped, installed("gpu"))
    if given(options, "nvidia"):
        yield subject("NVIDIA's own", *wrapped, options.nvidia)


def gpus(folder: Path) -> Sequence[str]:
    """Make 8 GPUs, and return the beginning of the command of a plugin that finds them."""
    sys.path.insert(0, str(ROOT / "tests/support"))
    from gpu import fake_library
    from gpu.driver_root import DriverRoot
    from gpu.fake_nvml import FakeNvml, Fleet

    DriverRoot(folder / "driver", folder).install()
    fake = FakeNvml(folder / "nvml", Fleet.of(8))
    found = {**fake.environment(fake_library.build(folder)), "DRIVER_ROOT_CTR_PATH": "/"}
    variables = [f"{name}={value}" for name, value in found.items()]
    return ["env", *variables, "unshare", "--mount", "sh", "-ec", NAMESPACE, "{plugin_dir}"]


def squat(program: str) -> Sequence[str]:
    """Return the beginning of the command of squat's plugin."""
    return [program, "--plugin-directory={plugin_dir}", "--listen=127.0.0.1:0"]


def resources(options: argparse.Namespace) -> Table:
    """Measure many resources of one device each, with the soft limit of containers."""
    from deviceplugin_testing.tools.bench import _measure
    from deviceplugin_testing.tools.bench._subject import BenchSubject, running

    programs: dict[str, Sequence[str]] = {"generic": [installed("generic")]}
    if given(options, "squat"):
        programs["squat's"] = squat(options.squat)
    columns = {}
    for count in RESOURCES[: 2 if options.quick else None]:
        nodes = [{"paths": [{"path": f"{{devices_dir}}/dev{one}"}]} for one in range(count)]
        entries = [json.dumps({"name": f"dev{n}", "groups": [one]}) for n, one in enumerate(nodes)]
        for name, words in programs.items():
            _say(f"{name}: {count} resources")
            subject = BenchSubject(
                title=name, resources=count, files=count, entries="node",
                command=[*SOFT_LIMIT, *words, *(f"--device={one}" for one in entries)],
            )  # fmt: skip
            figures = _measure.starts(subject, 1)
            with running(subject) as run:
                run.wait_listed()
                figures += [*_measure.size(run), *_measure.restarts(run, 2, seed=0)]
            columns[f"{name}, {count:,}"] = {one.name: one.values for one in figures}
    return table(MANY, columns)


def dra(options: argparse.Namespace) -> Table:
    """Measure claims of 64 devices, in turns."""
    from deviceplugin_testing.tools.bench import _claims
    from deviceplugin_testing.tools.bench._subject import BenchSubject

    drivers = {"simulated": [installed("simulated"), "--protocol=dra", "--number-devices=64"]}
    if given(options, "dra_example"):
        places = {
            "cdi-root": "cdi_dir",
            "kubelet-registrar-directory-path": "registry_dir",
            "kubelet-plugins-directory-path": "driver_dir",
        }
        shipped = [options.dra_example, "--num-devices=64"]
        shipped += [f"--{flag}={{{place}}}" for flag, place in places.items()]
        fast = [*shipped, "--kube-api-qps=1000", "--kube-api-burst=1000"]
        drivers |= {"example driver, not throttled": fast, "as its chart ships it": shipped}
    found = defaultdict[str, list[Any]](list)
    for turn in range(1 if options.quick else 3):
        for name, command in drivers.items():
            subject = BenchSubject(title=name, command=command)
            found[name].append(_claims.measure(subject, 64, turn, _say))
    return table(DRA, {name: merged(sections) for name, sections in found.items()})


def installed(name: str) -> str:
    """Return the program of one of our plugins."""
    return str(Path(sys.executable).with_name(f"{name}-device-plugin"))


def given(options: argparse.Namespace, name: str) -> bool:
    """Return whether a peer's program is there, and say so if it is skipped."""
    if path := getattr(options, name):
        return Path(path).is_file() or sys.exit(f"--{name.replace('_', '-')}: {path}: no such file")
    _say(f"skipped: its columns need --{name.replace('_', '-')}")
    return False


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


MEASURES: Final = {"plugins": plugins, "resources": resources, "dra": dra}


def main(words: Sequence[str]) -> None:
    """Measure, print the tables and write them."""
    from deviceplugin._platform import open_files

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag in ("--go", "--squat", "--nvidia", "--dra-example"):
        parser.add_argument(flag, metavar="PATH", default="", help="a peer's program")
    parser.add_argument("--only", choices=MEASURES, help="one table; the others stay")
    parser.add_argument("--quick", action="store_true", help="write nothing: see that it works")
    options = parser.parse_args(words)
    open_files.raise_limit()
    for name in [options.only] if options.only else MEASURES:
        found = MEASURES[name](options)
        print(f"\n{drawn(found)}", flush=True)
        if not options.quick:
            tables = {**saved(), name: found}
            text = json.dumps(tables).replace("], [", "],\n[")  # a line for each row
            FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
