from deviceplugin_testing.tools.bench._figures import Figure, Section, document, noise, table

QUIET = Figure("work", "ms", [1.0, 1.0, 1.1])


def test_a_99th_percentile_needs_a_hundred_values() -> None:
    assert None is Figure("a", "ms", range(99)).p99
    assert 98 == Figure("a", "ms", range(100)).p99
    assert 197 == Figure("a", "ms", range(200)).p99


def test_the_json_of_a_figure_has_its_values_in_their_order_and_what_they_say() -> None:
    expected = {
        "name": "start",
        "unit": "ms",
        "count": 3,
        "min": 1,
        "median": 2,
        "p99": None,
        "max": 3,
        "values": [3, 1, 2],
    }
    assert expected == Figure("start", "ms", [3, 1, 2]).to_json()


def test_the_table_shows_the_spread_of_what_was_measured_more_than_once() -> None:
    section = Section(
        "x", ["x", "--y"], [Figure("start", "ms", [1.5, 2, 30]), Figure("n", "", [7])]
    )
    rows = [line.split() for line in table([section], QUIET).splitlines()]
    assert ["x", "--y"] in rows
    assert ["min", "median", "p99", "max", "times"] in rows
    assert ["start", "1.50", "2", "30", "ms", "3"] in rows
    assert ["n", "7", "1"] in rows


def test_the_last_line_of_the_table_tells_a_quiet_machine_from_a_noisy_one() -> None:
    assert table([], QUIET).strip().endswith("quiet.")
    noisy = Figure("work", "ms", [1.0, 2.0, 2.0])
    assert (2.0, 2.0) == noise(noisy)
    assert table([], noisy).strip().endswith("compare ratios.")


def test_the_document_says_where_and_of_what_the_figures_are() -> None:
    section = Section("x", ("x",), [Figure("n", "", [7])])
    found = document([section], QUIET)
    assert 1 == found["format"]
    assert {"kernel", "architecture", "cpus", "python", "grpcio"} == set(found["machine"])
    assert [section.to_json()] == found["sections"]
