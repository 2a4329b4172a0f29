"""Every command of every image runs, or says what it lacks: on packages as an image has them.

`tests/images` does the same in the images themselves.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import images
from containers import image_commands
from containers.image_tree import ABSENT, judge, lay_out, small_node

FEWEST = "gopher"
"""What the framework lacks in no image is in this one's: no plugin needs less."""


@pytest.mark.parametrize("name", [*images.plugins(), images.OPERATOR])
@pytest.mark.slow
def test_every_command_of_an_image_runs_or_says_that_the_image_lacks_it(
    name: str, tmp_path: Path
) -> None:
    folder, node = lay_out(name, tmp_path / "packages"), small_node(tmp_path / "node")
    own = [] if name in {FEWEST, images.OPERATOR} else [f"deviceplugin_{name}"]
    done = subprocess.run(
        [sys.executable, "-S", image_commands.__file__, node, *own],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    judge(json.loads(done.stdout))


def test_images_lack_the_commands_for_authors_and_clusters() -> None:
    authors = {"accept", "bench", "conformance", "kubelet", "new", "stub"}
    of_clusters = {name for name in ABSENT if name.startswith("cluster-")}
    assert {"cluster-doctor", "cluster-hold", "cluster-release"} == of_clusters
    assert authors | of_clusters | {"fleet", "migrate", "node-template", "sysdump"} == set(ABSENT)
