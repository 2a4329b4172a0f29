"""The fields of a DaemonSet, as the API server's schema has them, and what is not one."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from deviceplugin.errors import ConfigError
from deviceplugin.kit.migration import Account, Path, Setting

_FIELDS: Final = """
DaemonSet: apiVersion kind metadata:ObjectMeta spec:DaemonSetSpec status*
ObjectMeta: annotations{} creationTimestamp deletionGracePeriodSeconds# deletionTimestamp
  finalizers[] generateName generation# labels{} managedFields* name namespace
  ownerReferences[]:OwnerReference resourceVersion selfLink uid
DaemonSetSpec: minReadySeconds# revisionHistoryLimit# selector:LabelSelector
  template:PodTemplateSpec updateStrategy:DaemonSetUpdateStrategy templateGeneration#
OwnerReference: apiVersion blockOwnerDeletion? controller? kind name uid
LabelSelector: matchExpressions[]:LabelSelectorRequirement matchLabels{}
PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
DaemonSetUpdateStrategy: rollingUpdate:RollingUpdateDaemonSet type
LabelSelectorRequirement: key operator values[]
PodSpec: activeDeadlineSeconds# affinity:Affinity automountServiceAccountToken?
  containers[]:Container dnsConfig:PodDNSConfig dnsPolicy enableServiceLinks? ephemeralContainers*
  hostAliases[]:HostAlias hostIPC? hostNetwork? hostPID? hostUsers? hostname hostnameOverride
  imagePullSecrets[]:LocalObjectReference initContainers[]:Container nodeName nodeSelector{}
  os:PodOS overhead{}~ preemptionPolicy priority# priorityClassName
  readinessGates[]:PodReadinessGate resourceClaims[]:PodResourceClaim
  resources:ResourceRequirements restartPolicy runtimeClassName schedulerName
  schedulingGates[]:PodSchedulingGate schedulingGroup:PodSchedulingGroup
  securityContext:PodSecurityContext serviceAccount serviceAccountName setHostnameAsFQDN?
  shareProcessNamespace? subdomain terminationGracePeriodSeconds# tolerations[]:Toleration
  topologySpreadConstraints[]:TopologySpreadConstraint volumes[]:Volume
RollingUpdateDaemonSet: maxSurge~ maxUnavailable~
Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
Container: args[] command[] env[]:EnvVar envFrom[]:EnvFromSource image imagePullPolicy
  lifecycle:Lifecycle livenessProbe:Probe name ports[]:ContainerPort readinessProbe:Probe
  resizePolicy[]:ContainerResizePolicy resources:ResourceRequirements restartPolicy
  restartPolicyRules[]:ContainerRestartRule securityContext:SecurityContext startupProbe:Probe
  stdin? stdinOnce? terminationMessagePath terminationMessagePolicy tty?
  volumeDevices[]:VolumeDevice volumeMounts[]:VolumeMount workingDir
PodDNSConfig: nameservers[] options[]:PodDNSConfigOption searches[]
HostAlias: hostnames[] ip
LocalObjectReference: name
PodOS: name
PodReadinessGate: conditionType
PodResourceClaim: name resourceClaimName resourceClaimTemplateName
ResourceRequirements: claims[]:ResourceClaim limits{}~ requests{}~
PodSchedulingGate: name
PodSchedulingGroup: podGroupName
PodSecurityContext: appArmorProfile:AppArmorProfile fsGroup# fsGroupChangePolicy runAsGroup#
  runAsNonRoot? runAsUser# seLinuxChangePolicy seLinuxOptions:SELinuxOptions
  seccompProfile:SeccompProfile supplementalGroups[]# supplementalGroupsPolicy sysctls[]:Sysctl
  windowsOptions:WindowsSecurityContextOptions
Toleration: effect key operator tolerationSeconds# value
TopologySpreadConstraint: labelSelector:LabelSelector matchLabelKeys[] maxSkew# minDomains#
  nodeAffinityPolicy nodeTaintsPolicy topologyKey whenUnsatisfiable
Volume: awsElasticBlockStore* azureDisk* azureFile* cephfs* cinder*
  configMap:ConfigMapVolumeSource csi* downwardAPI:DownwardAPIVolumeSource
  emptyDir:EmptyDirVolumeSource ephemeral* fc* flexVolume* flocker* gcePersistentDisk* gitRepo*
  glusterfs* hostPath:HostPathVolumeSource image* iscsi* name nfs* persistentVolumeClaim*
  photonPersistentDisk* portworxVolume* projected:ProjectedVolumeSource quobyte* rbd* scaleIO*
  secret:SecretVolumeSource storageos* vsphereVolume*
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution[]:PreferredSchedulingTerm
  requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution[]:WeightedPodAffinityTerm
  requiredDuringSchedulingIgnoredDuringExecution[]:PodAffinityTerm
EnvVar: name value valueFrom:EnvVarSource
EnvFromSource: configMapRef:ConfigMapEnvSource prefix secretRef:SecretEnvSource
Lifecycle: postStart:LifecycleHandler preStop:LifecycleHandler stopSignal
Probe: exec:ExecAction failureThreshold# grpc:GRPCAction httpGet:HTTPGetAction
  initialDelaySeconds# periodSeconds# successThreshold# tcpSocket:TCPSocketAction
  terminationGracePeriodSeconds# timeoutSeconds#
ContainerPort: containerPort# hostIP hostPort# name protocol
ContainerResizePolicy: resourceName restartPolicy
ContainerRestartRule: action exitCodes:ContainerRestartRuleOnExitCodes
SecurityContext: allowPrivilegeEscalation? appArmorProfile:AppArmorProfile
  capabilities:Capabilities privileged? procMount readOnlyRootFilesystem? runAsGroup#
  runAsNonRoot? runAsUser# seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile
  windowsOptions:WindowsSecurityContextOptions
VolumeDevice: devicePath name
VolumeMount: mountPath mountPropagation name readOnly? recursiveReadOnly subPath subPathExpr
PodDNSConfigOption: name value
ResourceClaim: name request
AppArmorProfile: localhostProfile type
SELinuxOptions: level role type user
SeccompProfile: localhostProfile type
Sysctl: name value
WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess?
  runAsUserName
ConfigMapVolumeSource: defaultMode# items[]:KeyToPath name optional?
DownwardAPIVolumeSource: defaultMode# items[]:DownwardAPIVolumeFile
EmptyDirVolumeSource: medium sizeLimit~
HostPathVolumeSource: path type
ProjectedVolumeSource: defaultMode# sources[]:VolumeProjection
SecretVolumeSource: defaultMode# items[]:KeyToPath optional? secretName
PreferredSchedulingTerm: preference:NodeSelectorTerm weight#
NodeSelector: nodeSelectorTerms[]:NodeSelectorTerm
WeightedPodAffinityTerm: podAffinityTerm:PodAffinityTerm weight#
PodAffinityTerm: labelSelector:LabelSelector matchLabelKeys[] mismatchLabelKeys[]
  namespaceSelector:LabelSelector namespaces[] topologyKey
EnvVarSource: configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector
  fileKeyRef:FileKeySelector resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
ConfigMapEnvSource: name optional?
SecretEnvSource: name optional?
LifecycleHandler: exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction
  tcpSocket:TCPSocketAction
ExecAction: command[]
GRPCAction: port# service
HTTPGetAction: host httpHeaders[]:HTTPHeader path port~ scheme
TCPSocketAction: host port~
ContainerRestartRuleOnExitCodes: operator values[]#
Capabilities: add[] drop[]
KeyToPath: key mode# path
DownwardAPIVolumeFile: fieldRef:ObjectFieldSelector mode# path
  resourceFieldRef:ResourceFieldSelector
VolumeProjection: clusterTrustBundle* configMap:ConfigMapProjection
  downwardAPI:DownwardAPIProjection podCertificate* secret:SecretProjection
  serviceAccountToken:ServiceAccountTokenProjection
NodeSelectorTerm: matchExpressions[]:NodeSelectorRequirement matchFields[]:NodeSelectorRequirement
ConfigMapKeySelector: key name optional?
ObjectFieldSelector: apiVersion fieldPath
FileKeySelector: key optional? path volumeName
ResourceFieldSelector: containerName divisor~ resource
SecretKeySelector: key name optional?
SleepAction: seconds#
HTTPHeader: name value
ConfigMapProjection: items[]:KeyToPath name optional?
DownwardAPIProjection: items[]:DownwardAPIVolumeFile
SecretProjection: items[]:KeyToPath name optional?
ServiceAccountTokenProjection: audience expirationSeconds# path
NodeSelectorRequirement: key operator values[]
"""
"""The fields of each type, of Kubernetes 1.36. Without a mark a field is a string.

``#`` is a whole number, ``?`` true or false, ``~`` a number or a string, ``*`` anything; ``[]``
before a mark is a list of it, and ``{}`` a mapping; ``:T`` is the type T.
"""
_TYPE: Final = re.compile(r"^(\w+): ", re.MULTILINE)
_FIELD: Final = re.compile(r"(\w+)(\S*)")
_parts: Final = _TYPE.split(_FIELDS)[1:]
FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    name: {field[1]: field[2] for field in _FIELD.finditer(text)}
    for name, text in zip(_parts[::2], _parts[1::2], strict=True)
}
"""The marks of the fields of each type."""
_SIMPLE: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "": ("strings", lambda one: isinstance(one, str)),
    "#": ("whole numbers", lambda one: isinstance(one, int) and not isinstance(one, bool)),
    "?": ("true or false", lambda one: isinstance(one, bool)),
    "~": (
        "numbers or strings",
        lambda one: isinstance(one, int | float | str) and not isinstance(one, bool),
    ),
    ":": ("mappings", lambda one: isinstance(one, Mapping)),
    "[": ("lists", lambda one: isinstance(one, list)),
    "{": ("mappings", lambda one: isinstance(one, Mapping)),
}
_ONE: Final = {"": "a string: put it in quotes", "#": "a whole number", "~": "a number or a string"}
_ONE_OF: Final = {"?": "true or false", "[": "a list", ":": "a mapping", "{": "a mapping"}


def known(account: Account, path: Path, mark: str, place: str) -> Any:
    """Return what is at ``path`` without keys that its type does not have, which are doubted.

    Raises:
        ConfigError: A value is of another type than the API server takes.
    """
    return _Reader(account, place, len(path)).read(path, account.get(path), mark)


class _Reader:
    """Reads values by their marks."""

    def __init__(self, account: Account, place: str, start: int) -> None:
        self._account = account
        self._place = place
        self._start = start

    def read(self, path: Path, content: Any, mark: str) -> Any:
        if content is None or mark == "*":
            return content
        if mark.startswith("[]"):
            return self._list(path, content, mark[2:])
        self._check(path, content, mark)
        if mark.startswith("{}"):
            for name, one in content.items():
                self._check((*path, name), one, mark[2:])
        return self._fields(path, content, mark[1:]) if mark.startswith(":") else content

    def _fields(self, path: Path, content: Mapping[str, Any], name: str) -> dict[str, Any]:
        marks = FIELDS[name]
        for field in marks:
            self._account.get((*path, field))
        for key, one in content.items():
            if key not in marks and one is not None:
                self._account.doubt((*path, key))
        there = [key for key in content if key in marks]
        return {key: self.read((*path, key), content[key], marks[key]) for key in there}

    def _list(self, path: Path, content: Any, mark: str) -> list[Any]:
        what, is_right = _SIMPLE[mark[:1]]
        if not isinstance(content, list) or not all(map(is_right, content)):
            raise self._wrong(path, content, f"a list of {what}")
        return [self.read((*path, index), one, mark) for index, one in enumerate(content)]

    def _check(self, path: Path, content: Any, mark: str) -> None:
        if not _SIMPLE[mark[:1]][1](content):
            raise self._wrong(path, content, {**_ONE, **_ONE_OF}[mark[:1]])

    def _wrong(self, path: Path, content: Any, wanted: str) -> ConfigError:
        above = self._account.name(path[: self._start])
        name = self._account.name(path).removeprefix(above).removeprefix(".")
        return Setting(": ".join(one for one in (self._place, name) if one), content).wrong(wanted)
