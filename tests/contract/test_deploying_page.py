"""The page on deploying says of components and settings what there is."""

import re
from pathlib import Path

import yaml

from manifests.expected import AGENT, owner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "common/docs/deploying.md").read_text()


def test_every_component_is_on_the_page() -> None:
    components = sorted(path.parent.name for path in ROOT.glob("deployments/components/*/k*.yaml"))
    general = [one for one in components if owner(one) != AGENT]
    table = PAGE.partition("## Change it")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)
    assert sorted([*general, f"{AGENT}-PLUGIN"]) == sorted(named)


def test_requests_and_limits_are_those_of_the_base() -> None:
    base = yaml.safe_load((ROOT / "deployments/base/daemonset.yaml").read_text())
    found = base["spec"]["template"]["spec"]["containers"][0]["resources"]
    cpu, memory = found["requests"]["cpu"], found["requests"]["memory"]
    text = f"{cpu}, {memory}; {found['limits']['memory']}"
    assert f"| requests and limits | {text.replace('Mi', ' Mi')} |" in PAGE


def test_what_may_be_written_to_is_what_is_mounted() -> None:
    (row,) = re.findall(r"^\| writable mounts of the host \| ([^|]+)", PAGE, re.MULTILINE)
    named = set(re.findall(r"`([^`]+)`", row))
    written = set()
    for path in ROOT.glob("deployments/*/kustomization.yaml"):
        text = path.read_text()
        for name in re.findall(r"name: (\w+), mountPath: [\w/.-]+}", text):
            written.update(re.findall(rf"name: {name}, hostPath: {{path: ([\w/.-]+)", text))
    assert named == written | {"/var/run/cdi"}
