"""Python that containers of the chaos run: in images of plugins, which have it and no shell."""

LOCK = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
names = [one for one in os.environ.get("Gopher", "").split(",") if one]
names += [name.removeprefix("SIMULATED_") for name in os.environ if name.startswith("SIMULATED_")]
locks = [open(f"/locks/{name}", "w") for name in names]
for lock in locks:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        open("/locks/violations", "a").write(f"{lock.name} {os.uname().nodename}\\n")
time.sleep(float(sys.argv[1]))
"""
"""A container locks its devices as long as it lives; the kernel ends that, however it dies."""
KUBELETS = """
import pathlib
for path in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if (path / "comm").read_text() == "kubelet\\n": print(path.name)
    except OSError: pass
"""
KILL = """
import os, pathlib, sys
for path in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        # Of all processes of the node, those with a file of this pod bound into their view.
        roots = [line.split()[3] for line in (path / "mountinfo").read_text().splitlines()]
        if any(f"pods/{sys.argv[1]}/" in root for root in roots): os.kill(int(path.name), 9)
    except OSError: pass
"""
SOCKETS = """
import pathlib, sys
for path in pathlib.Path(sys.argv[1]).iterdir():
    if path.is_socket() and path.name != "kubelet.sock": path.unlink(missing_ok=True)
"""
READ = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
print(path.read_text() if path.exists() else "")
"""
HOLDERS = """
import grpc
from deviceplugin.proto.podresources import podresources_pb2 as pb
channel = grpc.insecure_channel("unix:/var/lib/kubelet/pod-resources/kubelet.sock")
ask = channel.unary_unary("/v1.PodResourcesLister/List",
    pb.ListPodResourcesRequest.SerializeToString, pb.ListPodResourcesResponse.FromString)
for pod in ask(pb.ListPodResourcesRequest(), timeout=20).pod_resources:
    for container in pod.containers:
        for one in container.devices:
            for device in one.device_ids:
                print(pod.namespace, pod.name, one.resource_name, device)
"""
