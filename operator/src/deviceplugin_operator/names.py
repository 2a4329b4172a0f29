"""Names of the kind, of labels and annotations, and of the objects that are created."""

from typing import Final

GROUP: Final = "deviceplugin.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "DevicePlugin"
PLURAL: Final = "deviceplugins"

OWNER: Final = f"{GROUP}/owner"
"""Label: the ``DevicePlugin`` for which an object was created."""
PROFILE_LABEL: Final = f"{GROUP}/profile"
PLUGIN: Final = f"{GROUP}/plugin"
"""Label of pods. By it, two pods of one plugin never run on the same node."""
REVISION: Final = f"{GROUP}/revision"
"""Label of pods and ConfigMaps: the state of settings, image and manifest."""
CONFIG: Final = f"{GROUP}/config"
"""Annotation of pods: the plugin's configuration file."""
DRIVER: Final = f"{GROUP}/driver"
"""Annotation of accounts, and of pods with all that DRA needs: the name of the DRA driver."""
PROTOCOL: Final = f"{GROUP}/protocol"
"""Annotation of pods that offer their devices through DRA."""
ROLLOUT: Final = f"{GROUP}/rollout"
"""Annotation of DaemonSets: the progress of a roll-out, for a restarted operator."""
REFUSED: Final = f"{GROUP}/refused"
"""Annotation of an object that was put back, because the API server refused its replacement."""

MAX_NAME: Final = 40
MAX_PROFILE: Final = 20
"""Most characters of a name, which becomes a part of names and labels of DaemonSets and pods."""
NAME: Final = rf"^[a-z0-9]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?$"
"""Without dots: in names of DaemonSets, a dot separates it from the profile."""
SPACE: Final = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
"""A namespace."""
PROFILE: Final = rf"^[a-z0-9]([-a-z0-9]{{0,{MAX_PROFILE - 2}}}[a-z0-9])?$"
_WORD: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
DOMAIN: Final = f"^{_DOMAIN}$"
LABEL: Final = f"^({_DOMAIN}/)?{_WORD}$"
"""The key of a label."""
_PART: Final = "[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
IMAGE: Final = (
    rf"^(([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(:[0-9]{{1,5}})?/)?{_PART}(/{_PART})*"
    r"(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[a-z0-9]+([+._-][a-z0-9]+)*:[0-9a-fA-F]{32,128})?$"
)
"""A reference to an image, as registries and runtimes read it."""
MAX_IMAGE: Final = 512
MAX_DOMAIN: Final = 253
MAX_DRIVER: Final = 63
"""Most characters of the name of a DRA driver, which Kubernetes sets."""
RESOURCES: Final = rf"^{_DOMAIN}/[A-Za-z0-9*]([-A-Za-z0-9_.*]{{0,61}}[A-Za-z0-9*])?$"
"""Resources, of which ``*`` stands for any characters."""
MAX_CONFIG: Final = 200_000
"""Most bytes of a configuration file: annotations have 262,144 together."""
MAX_LABELS: Final = 16
MAX_PROFILES: Final = 16
MAX_COMPONENTS: Final = 16
MAX_RESOURCES: Final = 64
"""Most entries: the API server can then say what its rules cost, and nobody needs more."""
MAX_PROBLEMS: Final = 20
"""Most nodes with unhealthy devices that a status lists."""
LABEL_VALUE: Final = f"^({_WORD})?$"


def daemon_set(owner: str, profile: str) -> str:
    """Return the name of the DaemonSet for the nodes of one profile."""
    return f"dp-{owner}.{profile}" if profile else f"dp-{owner}"


def account(plugin: str, owner: str) -> str:
    """Return the name of the service account of pods that can use DRA."""
    return f"{f'custom-{owner}' if plugin == 'custom' else plugin}-device-plugin"


def deploys(account: str) -> dict[str, str]:
    """Return the right that marks that the rights of ``account`` were applied."""
    place = {"group": GROUP, "resource": PLURAL, "subresource": "dra"}
    return {**place, "verb": "deploy", "name": account}


def config_map(owner: str, profile: str, revision: str) -> str:
    """Return the name of the ConfigMap of a revision."""
    return f"{daemon_set(owner, profile)}.{revision}"
