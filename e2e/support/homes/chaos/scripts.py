"""Python that containers of the chaos run: in images of plugins, which have it and no shell."""

LOCK = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
names = [one for one in os.environ.get("Gopher", "").split(",") if one]
names += [name.removeprefix("SIMULATED_") for name in os.environ if name.startswith("SIMULATED_")]
locks = [open(f"/locks/{name}", "a+") for name in names]
for lock in locks:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        print(os.uname().nodename, f"{time.time():.3f}", end="", file=lock, flush=True)
    except BlockingIOError:
        lock.seek(0)
        note = f"{lock.name} {os.uname().nodename} {time.time():.3f}, held by {lock.read()}\\n"
        open("/locks/violations", "a").write(note)
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
_PODS = """
import grpc, sys
from deviceplugin.proto.podresources import podresources_pb2 as pb
channel = grpc.insecure_channel("unix:/var/lib/kubelet/pod-resources/kubelet.sock")
def ask(name, request, response):
    call = channel.unary_unary(f"/v1.PodResourcesLister/{name}",
        request.SerializeToString, response.FromString)
    return call(request(), timeout=20)
"""
HOLDERS = f"""{_PODS}
for pod in ask("List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse).pod_resources:
    for container in pod.containers:
        for one in container.devices:
            for device in one.device_ids:
                print(pod.namespace, pod.name, one.resource_name, device)
"""
OFFERED = f"""{_PODS}
found = ask("GetAllocatableResources", pb.AllocatableResourcesRequest,
    pb.AllocatableResourcesResponse).devices
# A device is listed once for each of its NUMA nodes.
for line in sorted({{f"{{one.resource_name}} {{id}}" for one in found for id in one.device_ids}}):
    print(line)
"""
"""The healthy devices, as the kubelet knows them at this moment."""
VITALS = """
import os, pathlib
lines = pathlib.Path("/proc/1/status").read_text().splitlines()
said = dict(line.split(":", 1) for line in lines)
print(said["VmRSS"].split()[0], said["Threads"], len(os.listdir("/proc/1/fd")))
"""
"""Memory in KiB, threads and open files of the plugin, in its own container."""
UNDO = """
import os, pathlib, signal, sys, time
CLOCK, OVER = pathlib.Path("/dev/shm/clock"), pathlib.Path("/dev/shm/over")
def undo(folder):
    for path in pathlib.Path(folder).glob("chaos-full*"): path.unlink(missing_ok=True)
    if CLOCK.exists():
        steady, clock = map(float, CLOCK.read_text().split())
        time.clock_settime(time.CLOCK_REALTIME, clock + time.monotonic() - steady)
        CLOCK.unlink(missing_ok=True)
"""
WITNESS = f"""{UNDO}
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try: time.sleep(float(sys.argv[2]))
finally:
    OVER.touch()
    time.sleep(0.5)  # what fills the disk must have seen it
    undo(sys.argv[1])
"""
"""However a test ends, its pod ends; then nothing is left of the faults below."""
LARGEST = 64
"""MiB of the file system that is filled, at most."""
MOST_FILES = 20_000
FILL = f"""{UNDO}
folder = pathlib.Path(sys.argv[1])
found = os.statvfs(folder)
size = found.f_blocks * found.f_frsize >> 20
if size > {LARGEST} or not 0 < found.f_files <= {MOST_FILES}:
    sys.exit(print(f"{{folder}} is in a file system of {{size}} MiB and {{found.f_files}} files"))
end = time.monotonic() + float(sys.argv[2])
number = 0
try:
    while time.monotonic() < end and not OVER.exists():
        try:
            with open(folder / "chaos-full", "ab", buffering=0) as file:
                while True: file.write(bytes(4096))
        except OSError: pass
        try:
            while True:
                (folder / f"chaos-full-{{number}}").touch()
                number += 1
        except OSError: pass
        time.sleep(0.05)  # what is deleted is filled again
finally: undo(folder)
"""
"""Leave no block and no file in a small file system for some seconds; say why if it is large."""
BIND = """
import os, pathlib, socket, sys
path = pathlib.Path(sys.argv[1], "chaos-full.sock")
try:
    socket.socket(socket.AF_UNIX).bind(str(path))
    path.unlink()
except OSError as error: print(error.strerror)
"""
"""Say why no socket can be created in a folder."""
JUMP = f"""{UNDO}
CLOCK.write_text(f"{{time.monotonic()}} {{time.time()}}")
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + float(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
finally: undo("/nowhere")
"""
"""Set the node's clock for some seconds."""
