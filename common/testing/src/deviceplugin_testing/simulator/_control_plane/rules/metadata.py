"""What is wrong with the metadata of an object."""

from collections.abc import Iterator, Mapping

from deviceplugin_testing.simulator._control_plane.kinds import Object
from deviceplugin_testing.simulator._control_plane.refusals import FieldError, invalid, required
from deviceplugin_testing.simulator._control_plane.rules import names

_OWNER = {"kind": "must not be empty", "name": "must not be empty", "uid": "must not be empty"}


def check_metadata(metadata: Mapping[str, object]) -> Iterator[FieldError]:
    """Yield the errors of ``metadata``, whose name is complete."""
    generated = str(metadata.get("generateName", ""))
    if generated:
        prefix = f"{generated[:-1]}a" if len(generated) > 1 and generated[-1] == "-" else generated
        for problem in names.subdomain(prefix):
            yield invalid("metadata.generateName", generated, problem)
    name = str(metadata.get("name", ""))
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from (invalid("metadata.name", name, one) for one in names.subdomain(name))
    yield from _check_strings(metadata)
    owners: list[Object] = metadata.get("ownerReferences", [])  # type: ignore[assignment]
    for owner in owners:
        yield from _check_owner(owner)


def _check_strings(metadata: Mapping[str, object]) -> Iterator[FieldError]:
    labels: Mapping[str, str] = metadata.get("labels", {})  # type: ignore[assignment]
    for key, value in sorted(labels.items()):
        for problem in names.qualified(key):
            yield invalid("metadata.labels", key, problem)
        for problem in names.value(value):
            yield invalid("metadata.labels", value, problem)
    annotations: Mapping[str, str] = metadata.get("annotations", {})  # type: ignore[assignment]
    for key in sorted(annotations):
        for problem in names.qualified(key.lower()):
            yield invalid("metadata.annotations", key, problem)


def _check_owner(owner: Object) -> Iterator[FieldError]:
    place = "metadata.ownerReferences"
    if not owner["apiVersion"]:
        yield invalid(f"{place}.apiVersion", "", "version must not be empty")
    for field, problem in _OWNER.items():
        if not owner[field]:
            yield invalid(f"{place}.{field}", "", problem)
