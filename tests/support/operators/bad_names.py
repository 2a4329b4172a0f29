"""Objects with one fault each: a name that nothing can have, or too much of something."""

from typing import Any, Final, NamedTuple


class Bad(NamedTuple):
    """A spec with a fault."""

    fault: str
    spec: Any
    field: str
    """What any message about it has to name."""
    said: str
    """How the operator's message begins, or what is in it."""


NAMES: Final = (
    Bad(
        "no resource",
        {"plugin": "gopher", "gopher": {"resource": "nonsense"}},
        "resource",
        "spec.gopher: resource: 'nonsense' is not the name of a resource: it needs a domain",
    ),
    Bad(
        "a resource of Kubernetes",
        {"plugin": "simulated", "simulated": {"resource": "kubernetes.io/x"}},
        "resource",
        "spec.simulated: resource: 'kubernetes.io/x' is not the name of a resource: kubernetes.io/",
    ),
    Bad(
        "a resource with NUL",
        {"plugin": "gopher", "gopher": {"resource": "example.com/a\0"}},
        "resource",
        "spec.gopher: resource: ",
    ),
    Bad(
        "a resource that is too long",
        {"plugin": "gopher", "gopher": {"resource": f"{'a' * 245}/b"}},
        "resource",
        "244 characters at most",
    ),
    Bad(
        "a resource of a profile",
        {
            "plugin": "simulated",
            "profileLabel": "l",
            "profiles": {"a": {"simulated": {"resource": "requests.a.b/c"}}},
        },
        "resource",
        "spec.profiles.a.simulated: resource: 'requests.a.b/c' is not the name of a resource",
    ),
    Bad(
        "a resource of Intel GPUs",
        {"plugin": "intelgpu", "intelgpu": {"resource-name": "{driver}"}},
        "resource-name",
        "spec.intelgpu: resource-name: '{driver}' is not the name of a resource",
    ),
    Bad(
        "a domain of Kubernetes",
        {"plugin": "generic", "generic": {"domain": ["kubernetes.io"]}},
        "generic",
        "spec.generic: 'kubernetes.io/",
    ),
    Bad(
        "a resource of Kubernetes for GPUs",
        {
            "plugin": "gpu",
            "gpu": {"resources": {"gpus": [{"pattern": "*", "name": "kubernetes.io/gpu"}]}},
        },
        "gpu",
        "spec.gpu: 'kubernetes.io/gpu' is not a resource",
    ),
    Bad(
        "shares of Intel GPUs",
        {"plugin": "intelgpu", "intelgpu": {"shares": 1001}},
        "shares",
        "spec.intelgpu: shares: 1001 is not a number of shares",
    ),
    Bad(
        "image in capitals",
        {"plugin": "gpu", "image": "UPPERCASE:::"},
        "image",
        "spec.image: 'UPPERCASE:::' is not an image",
    ),
    Bad(
        "long image",
        {"plugin": "gpu", "image": "a" * 513},
        "image",
        "is not an image",
    ),
    Bad(
        "digest",
        {"plugin": "gpu", "image": "a@sha256:b"},
        "image",
        "spec.image: 'a@sha256:b' is not an image",
    ),
    Bad(
        "many labels",
        {"plugin": "gpu", "nodeSelector": {f"l{number}": "" for number in range(17)}},
        "nodeSelector",
        "spec.nodeSelector: has 17 entries, of at most 16",
    ),
    Bad(
        "many profiles",
        {
            "plugin": "gpu",
            "profileLabel": "l",
            "profiles": {f"p{number}": {} for number in range(17)},
        },
        "profiles",
        "spec.profiles: has 17 entries, of at most 16",
    ),
    Bad(
        "many resources",
        {"plugin": "custom", "image": "i", "custom": {"resources": ["a.b/c"] * 65}},
        "resources",
        "spec.custom.resources: has 65 entries, of at most 64",
    ),
    Bad(
        "a long domain of a label",
        {"plugin": "gpu", "nodeSelector": {f"{'a.' * 127}a/b": "c"}},
        "nodeSelector",
        ": is not the key of a label",
    ),
    Bad(
        "large settings",
        {"plugin": "custom", "image": "i", "custom": {"config": {"a": "b" * 200_000}}},
        "config",
        "spec.custom: config: has 200004 bytes as a file, of at most 200000",
    ),
)
