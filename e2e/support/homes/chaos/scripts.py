"""Python that containers of the chaos run: in images of plugins, which have it and no shell."""

LOCK = """
import fcntl, json, os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
envs = {"Gopher": [one for one in os.environ.get("Gopher", "").split(",") if one],
    "SIMULATED": [name.removeprefix("SIMULATED_") for name in os.environ if "SIMULATED_" in name]}
parts = [name for name in os.environ if name.startswith("PART_")]
locks = [open(f"/locks/{name}", "a+") for names in (*envs.values(), parts) for name in names]
for lock in locks:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lock.truncate(0)
        print(os.uname().nodename, f"{time.time():.3f}", end="", file=lock, flush=True)
    except BlockingIOError:
        lock.seek(0)
        note = f"{lock.name} {os.uname().nodename} {time.time():.3f}, held by {lock.read()}\\n"
        open("/locks/violations", "a").write(note)
def there(folder, prefix):
    found = os.listdir(folder) if os.path.isdir(folder) else []
    return [one.removeprefix(prefix) for one in found if one.startswith(prefix)]
pod, container = os.uname().nodename, sys.argv[2] if len(sys.argv) > 2 else "main"
view = {"pod": pod, "container": container, "envs": envs, "mounts": there("/chaos", ""),
    "nodes": there("/dev", "chaos-")}
os.makedirs("/locks/views", exist_ok=True)
place = pathlib.Path("/locks/views", f"{pod}.{container}.new")
place.write_text(json.dumps(view))
place.replace(place.with_suffix(".json"))
time.sleep(float(sys.argv[1]))
"""
"""A container locks its devices as long as it lives; the kernel ends that, however it dies.

It writes down what it sees of them: variables, mounts and device nodes.
"""
PROGRAMS = """
import os, pathlib
def programs(name):
    # Another node may be on the same machine, with a network of its own.
    network = os.readlink("/proc/self/ns/net")
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found = (path / "comm").read_text() == name[:15] + "\\n"
            if found and os.readlink(path / "ns/net") == network: yield path.name
        except OSError: pass
"""
KUBELETS = f"{PROGRAMS}for pid in programs('kubelet'): print(pid)"
_KILL = """
import os, pathlib, sys
def kill(uid):
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            # Of all processes of the node, those with a file of this pod bound into their view.
            roots = [line.split()[3] for line in (path / "mountinfo").read_text().splitlines()]
            if any(f"pods/{uid}/" in root for root in roots): os.kill(int(path.name), 9)
        except OSError: pass
"""
KILL = f"{_KILL}for uid in sys.argv[1:]: kill(uid)"
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
SEEN = f"""{_PODS}
import json, pathlib, urllib.request
offered = ask("GetAllocatableResources", pb.AllocatableResourcesRequest,
    pb.AllocatableResourcesResponse).devices
listed, claimed = [], []
for pod in ask("List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse).pod_resources:
    for container in pod.containers:
        at = [pod.namespace, pod.name, container.name]
        listed += [[*at, one.resource_name, id] for one in container.devices
            for id in one.device_ids]
        claimed += [[*at, one.claim_name, device.driver_name, device.device_name]
            for one in container.dynamic_resources for device in one.claim_resources]
def read(folder, pattern):
    return {{one.name: one.read_text() for one in pathlib.Path(folder).glob(pattern)}}
checkpoint = pathlib.Path(sys.argv[1], "kubelet_internal_checkpoint")
data = json.loads(checkpoint.read_text())["Data"] if checkpoint.exists() else {{}}
served = {{}}
for address in sys.argv[2:]:
    place = f"[{{address}}]" if ":" in address else address
    with urllib.request.urlopen(f"http://{{place}}:9494/devices", timeout=20) as answer:
        served |= {{one["name"]: one["devices"] for one in json.load(answer)["resources"]}}
print(json.dumps({{"listed": listed, "claimed": claimed, "served": served,
    "violations": "".join(read("/locks", "violations").values()),
    # A device is listed once for each of its NUMA nodes.
    "offered": sorted({{(one.resource_name, id) for one in offered for id in one.device_ids}}),
    "checkpoint": data.get("PodDeviceEntries") or [],
    "views": [*map(json.loads, read("/locks/views", "*.json").values())],
    "specs": read("/var/run/cdi", "*.json")}}))
"""
"""What is known on the node at this moment: by the kubelet, its checkpoint, CDI, containers."""
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
FROZEN = pathlib.Path("/dev/shm/frozen")
def send(number, pids):
    for pid in pids:
        try: os.kill(int(pid), number)
        except ProcessLookupError: pass
def undo(*folders):
    for folder in folders:
        for path in pathlib.Path(folder).glob("chaos-full*"): path.unlink(missing_ok=True)
    if FROZEN.exists():
        send(signal.SIGCONT, FROZEN.read_text().split())
        FROZEN.unlink(missing_ok=True)
    if CLOCK.exists():
        steady, clock = map(float, CLOCK.read_text().split())
        time.clock_settime(time.CLOCK_REALTIME, clock + time.monotonic() - steady)
        CLOCK.unlink(missing_ok=True)
"""
WITNESS = f"""{UNDO}
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
OVER.unlink(missing_ok=True)  # of a witness that ended with its node
try: time.sleep(float(sys.argv[1]))
finally:
    OVER.touch()
    time.sleep(0.5)  # what fills the disk must have seen it
    undo(*sys.argv[2:])
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
FREEZE = f"""{UNDO}{_KILL}{PROGRAMS}
name, seconds, running = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
dying = sys.argv[4:]
pids = [*programs(name)]
if not pids: sys.exit(print(f"no process {{name}} on the node"))
end = time.monotonic() + seconds
try:
    FROZEN.write_text(" ".join(pids))
    while time.monotonic() < end and not OVER.exists():
        send(signal.SIGSTOP, pids)
        for uid in dying: kill(uid)
        dying = []
        time.sleep(0.25)
        if running: send(signal.SIGCONT, pids)
        time.sleep(running)
finally: undo()
"""
"""Have a program of the node stand still for some seconds, or run for ``running`` of each 0.25.

The pods that are named are killed meanwhile.
"""
JUMP = f"""{UNDO}
CLOCK.write_text(f"{{time.monotonic()}} {{time.time()}}")
try:
    time.clock_settime(time.CLOCK_REALTIME, time.time() + float(sys.argv[1]))
    time.sleep(float(sys.argv[2]))
finally: undo()
"""
"""Set the node's clock for some seconds."""
