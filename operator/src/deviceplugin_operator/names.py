"""Names: of the kind, of labels and annotations, of the objects that are made."""

from typing import Final

GROUP: Final = "deviceplugin.dev"
VERSION: Final = "v1alpha1"
KIND: Final = "DevicePlugin"
PLURAL: Final = "deviceplugins"

OWNER: Final = f"{GROUP}/owner"
"""Label: the object that everything was made for."""
PROFILE_LABEL: Final = f"{GROUP}/profile"
PLUGIN: Final = f"{GROUP}/plugin"
"""Label of pods, by which two of one plugin never come to the same node."""
REVISION: Final = f"{GROUP}/revision"
"""Label of pods and ConfigMaps: which state of settings, image and manifest it is."""
ROLLOUT: Final = f"{GROUP}/rollout"
"""Annotation of DaemonSets: how far a roll-out is, for an operator that starts anew."""

MAX_NAME: Final = 40
MAX_PROFILE: Final = 20
"""Characters of names, which become parts of names and labels of DaemonSets and their pods."""
NAME: Final = rf"^[a-z0-9]([-a-z0-9]{{0,{MAX_NAME - 2}}}[a-z0-9])?$"
"""Without dots, which divide it from the profile in names of DaemonSets."""
PROFILE: Final = rf"^[a-z0-9]([-a-z0-9]{{0,{MAX_PROFILE - 2}}}[a-z0-9])?$"


def daemon_set(owner: str, profile: str) -> str:
    """Return the name of the DaemonSet for the nodes of one profile."""
    return f"dp-{owner}.{profile}" if profile else f"dp-{owner}"


def config_map(owner: str, profile: str, revision: str) -> str:
    """Return the name of the ConfigMap of a revision."""
    return f"{daemon_set(owner, profile)}.{revision}"
