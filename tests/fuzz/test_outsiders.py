"""Whatever outsiders write ends in a documented error at most.

The samples are the same each time. ``FUZZ_SECONDS=60`` plays others, for so long in all;
``FUZZ_SEED=2`` plays others than those.
"""

import os
import tempfile
import time
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from fuzzing import cluster, files, holds, kubelet, network, node
from fuzzing.samples import Sample, changed_bytes, changed_places
from fuzzing.target import Read, Target

TARGETS = [
    one for every in (kubelet, cluster, files, network, node, holds) for one in every.TARGETS
]
CASES = [
    pytest.param(one, change(one.seeds), id=f"{one.name}, {name}")
    for one in TARGETS
    for name, change in (("bytes", changed_bytes), ("places", changed_places))
    if change is changed_bytes or any(not isinstance(each.document, bytes) for each in one.seeds)
]
SAMPLES = 15
SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
"""For all cases together, on all workers."""
SEED = os.environ.get("FUZZ_SEED", "1")
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
LONGEST = 20_000
"""Characters of a message."""


@pytest.mark.parametrize(("target", "samples"), CASES)
def test_what_outsiders_write_is_read_or_refused_in_words(
    target: Target, samples: st.SearchStrategy[Sample]
) -> None:
    # The path of a socket is short, so this is not in pytest's folder.
    with tempfile.TemporaryDirectory(prefix="fuzz-") as outside:
        folder = Path(outside, "own")
        folder.mkdir()
        with target.begin(folder) as read:
            play(target, read, samples)
        assert [folder] == [*Path(outside).iterdir()]


def play(target: Target, read: Read, samples: st.SearchStrategy[Sample]) -> None:
    """Have the target read samples: some that are always the same, or new ones for a while."""

    def check(sample: Sample) -> None:
        try:
            read(sample)
        except target.errors as error:
            check_message(str(error))

    how = settings(max_examples=SAMPLES, derandomize=not SECONDS, database=None, print_blob=True)
    end = time.monotonic() + SECONDS * WORKERS / len(CASES)
    for turn in count():
        seed(f"{SEED} {turn}")(how(given(sample=samples)(check)))()
        if time.monotonic() >= end:
            break


def check_message(text: str) -> None:
    assert len(text) <= LONGEST
    assert text.replace("\n", "").isprintable()
