"""Objects with one fault each, which the API server or the operator refuses."""

from typing import Final

from operators.bad_names import NAMES, Bad

SHARED: Final = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}


BAD: Final = (
    Bad("no spec", None, "spec", "spec: "),
    Bad("no plugin", {}, "plugin", "spec: plugin is missing"),
    Bad("unknown plugin", {"plugin": "gpus"}, "plugin", "spec.plugin: 'gpus' "),
    Bad(
        "unknown key",
        {"plugin": "gpu", "image_": "a"},
        "image_",
        "spec.image_: unknown key: did you mean",
    ),
    Bad("image", {"plugin": "gpu", "image": "a b"}, "image", "spec.image: 'a b' is not an image"),
    Bad(
        "custom without image",
        {"plugin": "custom"},
        "image",
        "spec: image: is needed for plugin custom",
    ),
    Bad("other plugin's", {"plugin": "gpu", "fpga": {}}, "fpga", "spec.fpga: is for plugin fpga"),
    Bad(
        "other plugin's in a profile",
        {"plugin": "gpu", "profileLabel": "l", "profiles": {"a": {"fpga": {}}}},
        "fpga",
        "spec.profiles.a.fpga: is for plugin fpga",
    ),
    Bad(
        "profiles without label",
        {"plugin": "gpu", "profiles": {"a": {}}},
        "profileLabel",
        "spec: profileLabel: is needed with profiles",
    ),
    Bad(
        "label without profiles",
        {"plugin": "gpu", "profileLabel": "l"},
        "profileLabel",
        "spec: profileLabel: is needed",
    ),
    Bad(
        "name of a profile",
        {"plugin": "gpu", "profileLabel": "l", "profiles": {"A.b": {}}},
        "profiles",
        "spec.profiles.A.b: a name is 1 to 20",
    ),
    Bad(
        "component",
        {"plugin": "gpu", "components": ["cdj"]},
        "components",
        "spec.components[0]: 'cdj' ",
    ),
    Bad(
        "events",
        {"plugin": "gpu", "components": ["events"]},
        "components",
        "spec.components[0]: 'events' ",
    ),
    Bad(
        "canary",
        {"plugin": "gpu", "rollout": {"canary": 0}},
        "canary",
        "spec.rollout.canary: 0 is not a whole",
    ),
    Bad(
        "0%",
        {"plugin": "gpu", "rollout": {"maxUnavailable": "0%"}},
        "maxUnavailable",
        "spec.rollout.maxUnavailable: '0%' is not a number above 0",
    ),
    Bad(
        "no nodes at once",
        {"plugin": "gpu", "rollout": {"maxUnavailable": 0}},
        "maxUnavailable",
        "spec.rollout.maxUnavailable: 0 is not a whole number from 1",
    ),
    Bad(
        "deadline",
        {"plugin": "gpu", "rollout": {"deadline": "2"}},
        "deadline",
        "spec.rollout.deadline: '2' is not",
    ),
    Bad(
        "0s",
        {"plugin": "gpu", "rollout": {"deadline": "0s"}},
        "deadline",
        "spec.rollout.deadline: '0s' is not",
    ),
    Bad(
        "on failure",
        {"plugin": "gpu", "rollout": {"onFailure": "x"}},
        "onFailure",
        "spec.rollout.onFailure: 'x'",
    ),
    Bad(
        "paused",
        {"plugin": "gpu", "paused": "yes"},
        "paused",
        "spec.paused: 'yes' is not true or false",
    ),
    Bad(
        "selector",
        {"plugin": "gpu", "nodeSelector": {"a": True}},
        "nodeSelector",
        "spec.nodeSelector.a: true is not",
    ),
    Bad(
        "key of a selector",
        {"plugin": "gpu", "nodeSelector": {"a b": "c"}},
        "nodeSelector",
        "spec.nodeSelector.a b: is not the key of a label, such as example.com/gpu",
    ),
    Bad(
        "value of a selector",
        {"plugin": "gpu", "nodeSelector": {"a": "c d"}},
        "nodeSelector",
        "spec.nodeSelector.a: 'c d' is not a label's value: at most 63 letters",
    ),
    Bad(
        "long value of a selector",
        {"plugin": "gpu", "nodeSelector": {"a": "c" * 64}},
        "nodeSelector",
        "is not a label's value: at most 63 letters",
    ),
    Bad(
        "profile label",
        {"plugin": "gpu", "profileLabel": "a_b/c", "profiles": {"a": {}}},
        "profileLabel",
        "spec.profileLabel: 'a_b/c' is not the key of a label",
    ),
    Bad(
        "settings that are none",
        {"plugin": "gpu", "gpu": []},
        "gpu",
        "spec.gpu: a list is not a mapping",
    ),
    Bad(
        "enum",
        {"plugin": "gpu", "gpu": {"mig-strategy": "sngle"}},
        "mig-strategy",
        "spec.gpu: mig-strategy: 'sngle'",
    ),
    Bad(
        "typo",
        {"plugin": "gpu", "gpu": {"recovery-tim": "1m"}},
        "recovery-tim",
        "spec.gpu: recovery-tim: ",
    ),
    Bad(
        "duration",
        {"plugin": "gopher", "gopher": {"discovery-interval": "0s"}},
        "discovery-interval",
        "spec.gopher: discovery-interval: '0s'",
    ),
    Bad(
        "the manifest's",
        {"plugin": "gopher", "gopher": {"directory": "/gophers"}},
        "directory",
        "spec.gopher: directory: cannot be set here: the manifest mounts it",
    ),
    Bad(
        "every manifest's",
        {"plugin": "gpu", "gpu": {"http-address": "off"}},
        "http-address",
        "spec.gpu: http-address: cannot be set here: the manifest's probes ask there",
    ),
    Bad(
        "mps without root",
        {"plugin": "gpu", "gpu": {"sharing": {"mps": SHARED["timeSlicing"]}}},
        "mps-root",
        "spec.gpu: mps-root",
    ),
    Bad(
        "tegra with cdi",
        {
            "plugin": "gpu",
            "gpu": {"device-discovery-strategy": "tegra", "device-list-strategy": ["cdi-cri"]},
        },
        "device-list-strategy",
        "spec.gpu: device-list-strategy: ",
    ),
    Bad(
        "imex",
        {"plugin": "gpu", "gpu": {"imex-channel-ids": [1]}},
        "imex-channel-ids",
        "spec.gpu: imex-channel-ids: [1] ",
    ),
    Bad(
        "both ways",
        {"plugin": "gpu", "gpu": {"sharing": {**SHARED, "mps": SHARED["timeSlicing"]}}},
        "sharing",
        "spec.gpu: sharing: ",
    ),
    Bad(
        "profile of the simulated plugin",
        {"plugin": "simulated", "simulated": {"profile": "nonsense"}},
        "profile",
        "spec.simulated: profile: 'nonsense' is not a profile",
    ),
    Bad(
        "too many",
        {"plugin": "simulated", "simulated": {"number-devices": -1}},
        "number-devices",
        "spec.simulated: number-devices -1 ",
    ),
    Bad(
        "another name of a list",
        {"plugin": "rdma", "rdma": {"resources": []}},
        "resources",
        "spec.rdma: resources: is called resourceList here",
    ),
    Bad(
        "a device without a group",
        {"plugin": "generic", "generic": {"devices": [{"name": "abc"}]}},
        "groups",
        "spec.generic: devices[0]: groups is missing",
    ),
    Bad(
        "variable",
        {"plugin": "gopher", "gopher": {"variable": "a=b"}},
        "variable",
        "spec.gopher: variable 'a=b' ",
    ),
    Bad(
        "shares of AMD GPUs",
        {"plugin": "amd", "amd": {"shares": 0}},
        "shares",
        "spec.amd: shares: 0 is not a number of shares",
    ),
    Bad(
        "errors of FPGAs",
        {"plugin": "fpga", "fpga": {"ignore-errors": ["pcie9"]}},
        "ignore-errors",
        "spec.fpga: ignore-errors: 'pcie9' ",
    ),
    Bad(
        "resources of others",
        {"plugin": "custom", "image": "i", "custom": {"resources": ["lamp"]}},
        "resources",
        "spec.custom.resources[0]: 'lamp' is not a resource",
    ),
    *NAMES,
)
