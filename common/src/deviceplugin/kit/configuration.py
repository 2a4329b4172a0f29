"""Configuration files: what is in them, by kind, and all that is wrong with them at once.

A *kind* says what stands at a place, and a `record` of kinds what a file has. `read` makes a value
of a file in TOML, JSON or YAML. Whatever is wrong is raised as one `ConfigError` that names file,
line and key of each fault; unknown keys, and keys that are given twice, are faults. `schema` is
the JSON Schema of the same declaration, for editors.

A field of `Settings` may be of such a kind, by `field(metadata={"kind": KIND})`.
"""

from deviceplugin._config.kinds import Kind, anything, either, list_of, mapping_of, nothing
from deviceplugin._config.places import (
    InvalidError,
    Place,
    of_file,
    of_plain,
    of_text,
    reading,
)
from deviceplugin._config.quantities import seconds, size_in_bytes, write_duration
from deviceplugin._config.records import (
    Key,
    as_argument,
    finished,
    needed,
    read,
    record,
    schema,
)
from deviceplugin._config.scalars import (
    boolean,
    choice,
    duration,
    integer,
    matches,
    name,
    number,
    path,
    size,
    text,
)
from deviceplugin._config.words import bounded, suggestion

__all__ = [
    "InvalidError",
    "Key",
    "Kind",
    "Place",
    "anything",
    "as_argument",
    "boolean",
    "bounded",
    "choice",
    "duration",
    "either",
    "finished",
    "integer",
    "list_of",
    "mapping_of",
    "matches",
    "name",
    "needed",
    "nothing",
    "number",
    "of_file",
    "of_plain",
    "of_text",
    "path",
    "read",
    "reading",
    "record",
    "schema",
    "seconds",
    "size",
    "size_in_bytes",
    "suggestion",
    "text",
    "write_duration",
]
