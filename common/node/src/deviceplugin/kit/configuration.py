"""Reading configuration files by a declaration, with all faults in one error.

A *kind* describes a value; a `record` of kinds describes a file. `read` returns the value of a
file in TOML, JSON or YAML. All faults are raised as one `ConfigError`, which has file, line and key
of each. Unknown keys and duplicate keys are faults. `schema` returns the JSON Schema of the same
declaration, for editors.

A field of `Settings` can have such a kind: `field(metadata={"kind": KIND})`. `settings_schema`
returns the schema of all fields. A field of a plain type can say more of its values instead:
`field(metadata={"check": CHECK, "schema": SCHEMA})`, as `RESOURCE_NAME` does. `CHECK` raises
`ValueError`, whose message continues after the value.
"""

from deviceplugin._config.documents.faults import InvalidError, bounded, refuse, suggestion
from deviceplugin._config.documents.nulls import without_nulls
from deviceplugin._config.documents.places import (
    Place,
    of_file,
    of_plain,
    of_text,
    plain_documents,
    reading,
)
from deviceplugin._config.kinds.kind import (
    Kind,
    anything,
    either,
    list_of,
    mapping_of,
    nothing,
    read_each,
    readable,
)
from deviceplugin._config.kinds.mappings import (
    Key,
    as_argument,
    finished,
    needed,
    read,
    record,
    schema,
)
from deviceplugin._config.kinds.scalars import (
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
from deviceplugin._config.names import RESOURCE_NAME, check_resource_name, resource_name_problem
from deviceplugin._config.quantities import seconds, size_in_bytes, write_duration
from deviceplugin._config.settings import EntrySettings
from deviceplugin._config.settings_class import settings_schema
from deviceplugin._platform.mounts import fixed

__all__ = [
    "RESOURCE_NAME",
    "EntrySettings",
    "InvalidError",
    "Key",
    "Kind",
    "Place",
    "anything",
    "as_argument",
    "boolean",
    "bounded",
    "check_resource_name",
    "choice",
    "duration",
    "either",
    "finished",
    "fixed",
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
    "plain_documents",
    "read",
    "read_each",
    "readable",
    "reading",
    "record",
    "refuse",
    "resource_name_problem",
    "schema",
    "seconds",
    "settings_schema",
    "size",
    "size_in_bytes",
    "suggestion",
    "text",
    "without_nulls",
    "write_duration",
]
