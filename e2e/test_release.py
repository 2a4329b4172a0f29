"""A release, as it is published, is installed, upgraded and uninstalled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from homes.case import cases
from homes.cluster.installed_release import InstalledRelease
from homes.cluster.kubectl import Kubectl
from homes.cluster.release import Release
from homes.cluster.session import Session
from homes.cluster.workload import is_running, started

CASES = cases()


@pytest.fixture(
    params=[pytest.param(name, marks=getattr(pytest.mark, name), id=name) for name in CASES]
)
def installed(
    request: pytest.FixtureRequest, session: Session | None, tmp_path: Path
) -> Iterator[InstalledRelease]:
    """Yield a plugin that is not installed yet, and leave nothing beside it."""
    if session is None:
        pytest.skip("needs a cluster")
    if not session.options.release:
        pytest.skip("no --release")
    session.progress.begin(request.node.name)
    session.keep(())
    made = InstalledRelease(tmp_path, session, CASES[request.param])
    if found := made.left():
        pytest.skip(f"{made.name} is there already: {', '.join(found)}")
    try:
        yield made
    finally:
        made.close()
        session.progress.end()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["manifests", "chart"])
def test_a_release_is_installed_upgraded_and_uninstalled(
    installed: InstalledRelease, session: Session, way: str
) -> None:
    options, name = session.options, installed.case.plugin.name
    first = Release(options.release)
    change = installed.prepare(first)
    before = (installed.files(), session.node.extended())
    ways = installed.way(way)
    try:
        ways.install(first, change)
        installed.plugin.wait_ready()
        check_image(installed, first)
        installed.add_files()
        found = offered(installed, session)
        for number, resource in enumerate(found):
            installed.hold(f"keeper-{number}", resource)
        keepers = [installed.pod(f"keeper-{number}") for number in range(len(found))]
        if options.next_release:
            following = Release(options.next_release)
            ways.install(following, change)
            installed.plugin.wait_ready()
            check_image(installed, following)
            assert found == offered(installed, session)
            for keeper in keepers:
                now = installed.pod(keeper["metadata"]["name"])
                assert is_running(now)
                assert started(keeper) == started(now)
            for number, resource in enumerate(found):
                if found[resource] > 1:
                    installed.hold(f"next-{number}", resource)
        assert any(one.startswith("daemonset.apps/") for one in installed.left())
    finally:
        ways.uninstall()
    progress = session.progress
    progress.wait(lambda: not installed.left(), f"nothing to be left of {name}", options.patience)
    progress.wait(
        lambda: before == (installed.files(), session.node.extended()),
        f"{session.node.name} to be as before {name}",
        options.patience,
    )


def check_image(installed: InstalledRelease, release: Release) -> None:
    """A pod runs the image of the release: by digest, as it was pulled from the registry."""
    named, known = installed.image()
    text = release.read(f"install-{installed.case.plugin.name}.yaml").decode()
    assert f"image: {named}\n" in text
    if "@" in named:
        assert named == known


def offered(installed: InstalledRelease, session: Session) -> dict[str, int]:
    """Wait until the node has all devices that the plugin has, and return how many by resource.

    There are some if the node has, or pretends to have, what the plugin is for.
    """
    found: dict[str, int] = {}
    expected = bool(installed.case.plugin.files or installed.pretends)

    def are_there() -> bool:
        found.clear()
        found.update(installed.devices())
        there = session.node.extended()
        return all(there.get(one) == count for one, count in found.items()) and (
            bool(found) or not expected
        )

    what = f"{session.node.name} to have what {installed.name} has"
    session.progress.wait(are_there, what, session.options.patience)
    return found


OPERATOR = ("operator-crd", "operator")
SPACE = "deviceplugin-operator"


@pytest.mark.timeout(1800)
def test_the_operator_of_a_release_is_installed_upgraded_and_uninstalled(
    session: Session | None,
) -> None:
    if session is None:
        pytest.skip("needs a cluster")
    options, kubectl = session.options, session.kubectl
    if not options.release:
        pytest.skip("no --release")
    if there(kubectl, [Release(options.release).address("install-operator-crd.yaml")]):
        pytest.skip("the operator is there already: the end of this would delete all its objects")
    session.progress.begin("the operator")
    installed: list[str] = []
    try:
        for address in filter(None, [options.release, options.next_release]):
            release = Release(address)
            installed[:] = [release.address(f"install-{one}.yaml") for one in OPERATOR]
            for file in installed:
                kubectl("apply", f"--filename={file}")
            limit = f"--timeout={options.patience:g}s"
            kubectl("rollout", "status", "deployment", f"--namespace={SPACE}", limit)
            (found,) = kubectl.get("deployments", f"--namespace={SPACE}")["items"]
            (container,) = found["spec"]["template"]["spec"]["containers"]
            assert (
                f"image: {container['image']}\n" in release.read("install-operator.yaml").decode()
            )
    finally:
        for file in installed[::-1]:
            kubectl("delete", f"--filename={file}", "--ignore-not-found")
    session.progress.wait(
        lambda: not there(kubectl, installed), "nothing to be left of it", options.patience
    )
    session.progress.end()


def there(kubectl: Kubectl, files: list[str]) -> str:
    """Return which objects of manifests are on the cluster."""
    words = [f"--filename={file}" for file in files]
    return kubectl("get", *words, "--ignore-not-found", "--output=name")
