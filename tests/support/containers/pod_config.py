"""Makes of a pod's manifest what the kubelet asks of a container runtime.

What is not known here is an error, not left out: a test would say that something works which it
has not tried. The one difference: every pod has the network of the node, as if it had said
``hostNetwork``, so that no network for pods is needed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers import cri_runtime_pb2 as pb
from deviceplugin_testing.simulator import RunOptions

_MASKED = ("asound", "acpi", "kcore", "keys", "latency_stats", "timer_list", "timer_stats")
_MASKED_TOO = ("/proc/sched_debug", "/proc/scsi", "/sys/firmware")
_READ_ONLY = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_REFERENCE = re.compile(r"\$\(([A-Za-z_.-]+)\)")
NOTHING = RunOptions({}, (), (), {}, ())
"""For a container without devices."""


@dataclass(frozen=True)
class Node:
    """Where pods are run."""

    name: str
    cgroup: str
    """The parent of all their control groups."""
    folder: Path
    """For logs and what the kubelet mounts by itself."""
    host: Mapping[str, Path] = field(default_factory=dict)
    """What stands for directories of the node; what is not named is the real one."""


class PodConfig:
    """A pod on a node. ``configs`` are the ConfigMaps that its volumes name, with their files."""

    def __init__(
        self,
        pod: Mapping[str, Any],
        uid: str,
        node: Node,
        configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._metadata, self._spec = pod["metadata"], pod["spec"]
        self._node, self._configs = node, configs or {}
        self._folder = node.folder / uid
        self.name = str(self._metadata["name"])
        security = self._spec.get("securityContext", {})
        self._security: Mapping[str, Any] = security
        self.sandbox = pb.PodSandboxConfig(
            metadata=pb.PodSandboxMetadata(
                name=self.name, uid=uid, namespace=self._metadata.get("namespace", "default")
            ),
            log_directory=str(self._folder),
            labels=self._metadata.get("labels", {}),
            annotations=self._metadata.get("annotations", {}),
            linux=pb.LinuxPodSandboxConfig(
                cgroup_parent=f"{node.cgroup}/pod{uid}",
                security_context=pb.LinuxSandboxSecurityContext(
                    namespace_options=_namespaces(),
                    selinux_options=_selinux(security),
                    run_as_user=_number(security.get("runAsUser")),
                    run_as_group=_number(security.get("runAsGroup")),
                    seccomp=_seccomp(security),
                ),
            ),
        )

    def log(self, container: str) -> Path:
        """Return the file with what a container prints."""
        return self._folder / f"{container}.log"

    def container(
        self, own: Mapping[str, Any], given: RunOptions = NOTHING, **environment: str
    ) -> pb.ContainerConfig:
        """Return what is asked for a container of the pod that gets ``given``.

        ``environment`` wins over the manifest's.
        """
        name = own["name"]
        known = {one["name"]: self._value(one) for one in own.get("env", ())} | environment
        # In the kubelet's order: what the manifest says comes later, and wins.
        envs = {**given.envs, **known}
        return pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name=name),
            image=pb.ImageSpec(image=own["image"]),
            command=[_expand(word, envs) for word in own.get("command", ())],
            args=[_expand(word, envs) for word in own.get("args", ())],
            working_dir=own.get("workingDir", ""),
            envs=[pb.KeyValue(key=key, value=value) for key, value in envs.items()],
            mounts=[
                *(
                    pb.Mount(
                        container_path=one.container_path,
                        host_path=one.host_path,
                        readonly=one.read_only,
                    )
                    for one in given.mounts
                ),
                *(self._mount(one) for one in own.get("volumeMounts", ())),
                self._termination_log(own),
            ],
            devices=[
                pb.Device(
                    container_path=one.container_path,
                    host_path=one.host_path,
                    permissions=one.permissions,
                )
                for one in given.devices
            ],
            annotations=given.annotations,
            CDI_devices=[pb.CDIDevice(name=one) for one in given.cdi_devices],
            log_path=self.log(name).name,
            linux=pb.LinuxContainerConfig(
                resources=_resources(own.get("resources", {})),
                security_context=self._rights(own.get("securityContext", {})),
            ),
        )

    def _value(self, entry: Mapping[str, Any]) -> str:
        if "valueFrom" not in entry:
            return str(entry["value"])
        fields = {"spec.nodeName": self._node.name, "metadata.name": self.name}
        return fields[entry["valueFrom"]["fieldRef"]["fieldPath"]]

    def _mount(self, mount: Mapping[str, Any]) -> pb.Mount:
        (volume,) = (one for one in self._spec["volumes"] if one["name"] == mount["name"])
        if "configMap" in volume:
            source = self._written(volume["configMap"]["name"])
        else:
            source = self._host_path(**volume["hostPath"])
        return pb.Mount(
            container_path=mount["mountPath"],
            host_path=str(source),
            readonly=mount.get("readOnly", False),
        )

    def _host_path(self, path: str, type: str) -> Path:  # noqa: A002  its name in a manifest
        source = self._node.host.get(path, Path(path))
        if type == "DirectoryOrCreate":
            assert path in self._node.host, f"{path} would be made on this machine"
            source.mkdir(parents=True, exist_ok=True)
        assert source.is_dir(), f"{type} {path}: no directory {source}"
        return source

    def _written(self, config: str) -> Path:
        folder = self._folder / "configs" / config
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self._configs[config].items():
            (folder / name).write_text(text)
        return folder

    def _termination_log(self, own: Mapping[str, Any]) -> pb.Mount:
        path = self._folder / f"{own['name']}.end"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        place = own.get("terminationMessagePath", "/dev/termination-log")
        return pb.Mount(container_path=place, host_path=str(path))

    def _rights(self, own: Mapping[str, Any]) -> pb.LinuxContainerSecurityContext:
        both = {**self._security, **own}
        user = both.get("runAsUser")
        assert not both.get("runAsNonRoot") or user, "runAsNonRoot, and the user is root"
        capabilities = both.get("capabilities", {})
        return pb.LinuxContainerSecurityContext(
            capabilities=pb.Capability(
                add_capabilities=capabilities.get("add", ()),
                drop_capabilities=capabilities.get("drop", ()),
            ),
            privileged=both.get("privileged", False),
            namespace_options=_namespaces(),
            selinux_options=_selinux(both),
            run_as_user=_number(user),
            run_as_group=_number(both.get("runAsGroup")),
            readonly_rootfs=both.get("readOnlyRootFilesystem", False),
            supplemental_groups=both.get("supplementalGroups", ()),
            no_new_privs=not both.get("allowPrivilegeEscalation", True),
            masked_paths=[*(f"/proc/{name}" for name in _MASKED), *_MASKED_TOO],
            readonly_paths=[f"/proc/{name}" for name in _READ_ONLY],
            seccomp=_seccomp(both),
        )


def _namespaces() -> pb.NamespaceOption:
    return pb.NamespaceOption(network=pb.NODE, pid=pb.CONTAINER)


def _number(value: int | None) -> pb.Int64Value | None:
    return None if value is None else pb.Int64Value(value=value)


def _selinux(security: Mapping[str, Any]) -> pb.SELinuxOption | None:
    return pb.SELinuxOption(**security["seLinuxOptions"]) if "seLinuxOptions" in security else None


def _seccomp(security: Mapping[str, Any]) -> pb.SecurityProfile:
    kind = security.get("seccompProfile", {"type": "Unconfined"})["type"]
    return pb.SecurityProfile(profile_type=kind)


def _resources(own: Mapping[str, Any]) -> pb.LinuxContainerResources:
    cpu = str(own.get("requests", {}).get("cpu", "0m"))
    assert cpu.endswith("m"), f"cpu: {cpu}"
    memory = own.get("limits", {}).get("memory", "0Mi")
    return pb.LinuxContainerResources(
        cpu_shares=max(2, int(cpu[:-1]) * 1024 // 1000),
        memory_limit_in_bytes=int(memory[:-2]) * _UNITS[memory[-2:]],
    )


def _expand(word: str, known: Mapping[str, str]) -> str:
    """Replace what is known, as in ``$(NODE_NAME)``, and leave the rest as it is."""
    return _REFERENCE.sub(lambda found: known.get(found[1], found[0]), word)
