"""Modules that are executed at their first use: whoever uses them sees no difference."""

import subprocess
import sys
from pathlib import Path

import pytest

from cluster.certificates import make, needs_openssl
from patience import PATIENCE

_BEGIN = """
import sys, threading
from deviceplugin._platform import late_modules
late_modules.install(); late_modules.install()
assert 1 == [type(one).__module__ for one in sys.meta_path].count(late_modules.__name__)
def idle(name):
    return type(sys.modules[name]) is late_modules._Late
import ssl, asyncio, hashlib, ipaddress, urllib.request, tempfile
assert idle("ssl") and idle("asyncio.sslproto") and "_ssl" not in sys.modules
assert idle("hashlib") or "coverage" in sys.modules  # which uses it
"""
_UNUSED = """
import inspect, warnings, unittest
[getattr(one, "__file__", None) for one in [*sys.modules.values()]]
inspect.getmodule(threading.Thread), inspect.stack(), inspect.getsource(urllib.request.urlopen)
with unittest.TestCase().assertWarns(UserWarning):
    warnings.warn("here")
assert "ssl" == ssl.__loader__.name and idle("ssl")
assert repr(ssl) == f"<module 'ssl' from {ssl.__file__!r}>"
"""
_USES = {
    "unless it is used": _UNUSED,
    "by another name": """
import ssl as other
from ssl import SSLContext
assert other.SSLContext is SSLContext is ssl.SSLContext is sys.modules["ssl"].SSLContext
assert type(ssl) is type(sys) and ssl.__loader__ is ssl.__spec__.loader
assert "ssl.py" in type(ssl.__loader__).get_filename(ssl.__loader__)
""",
    "by its class": """
assert not isinstance(1, ssl.SSLContext) and issubclass(ssl.SSLError, OSError)
assert isinstance(ssl.create_default_context(), ssl.SSLContext)
""",
    "by all its names": "from hashlib import *; assert sha256 is hashlib.sha256",
    "by their list": "assert {'SSLContext', 'socket'} <= {*dir(ssl)} & {*vars(ssl)}",
    "by its documentation": "assert 'SSL' in ssl.__doc__",
    "by a pickle": """
import pickle
for one in (ipaddress.ip_address("::1"), ssl.SSLError(1, "a"), ssl.TLSVersion.TLSv1_2):
    assert str(one) == str(pickle.loads(pickle.dumps(one)))
""",
    "by its source": """
import inspect
assert inspect.getsource(ssl.SSLContext).startswith("class SSLContext")
assert inspect.getmodule(ssl.SSLContext) is ssl
""",
    "by a reload before": "from importlib import reload; assert reload(ssl).SSLContext",
    "by a reload after": """
import importlib
before = ssl.SSLContext
assert importlib.reload(ssl) is ssl and ssl.SSLContext is not before
""",
    "by what is set in it": """
ssl.HAS_SNI = "mine"
ssl._create_default_https_context = ssl._create_unverified_context
tempfile.tempdir = "/there"
assert "mine" == ssl.HAS_SNI and "/there" == tempfile.gettempdir()
from http.client import HTTPSConnection
assert ssl.CERT_NONE == HTTPSConnection("a")._context.verify_mode
""",
    "by what is deleted from it": """
del ssl.SSLContext
assert not hasattr(ssl, "SSLContext") and ssl.SSLSocket
""",
    "by threads at once": """
import importlib, random
uses = {"hashlib": "sha256", "ipaddress": "ip_address", "prometheus_client.core": "Gauge"}
uses |= {"prometheus_client": "Gauge", "prometheus_client.asgi": "make_asgi_app"}
uses |= {"prometheus_client.exposition": "MetricsHandler", "shutil": "rmtree", "ssl": "SSLContext"}
uses |= {"asyncio.sslproto": "SSLProtocol", "tempfile": "mkdtemp"}
barrier, found, errors = threading.Barrier(50), [], []
threading.excepthook = errors.append
def use(seed):
    own = random.Random(seed).sample([*uses.items()], len(uses))
    barrier.wait()
    found.append({at: getattr(importlib.import_module(at), name) for at, name in own})
threads = [threading.Thread(target=use, args=[seed], daemon=True) for seed in range(50)]
[one.start() for one in threads], [one.join(60) for one in threads]
assert [] == errors and found[:1] * 50 == found and not any(map(idle, uses))
""",
    "by an import hook that wraps loaders": """
import importlib.util
del sys.modules["ssl"]
class Wrapping:
    def __init__(self, loader):
        self.create_module, self.exec_module = loader.create_module, loader.exec_module
class Hook:
    def find_spec(self, name, *_):
        if name == "ssl" and self in sys.meta_path:
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            spec.loader = Wrapping(spec.loader)
            return spec
sys.meta_path.insert(0, Hook())
import ssl
assert idle("ssl") and ssl.SSLContext and isinstance(ssl.__spec__.loader, Wrapping)
""",
    "by a hook that was there before": """
sys.modules.pop("shutil"), sys.meta_path.remove(
    [one for one in sys.meta_path if type(one).__module__ == late_modules.__name__][0])
seen = []
class Hook:
    def find_spec(name, *_):
        seen.append(name)
sys.meta_path.insert(0, Hook)
late_modules.install()
import shutil
assert ["shutil"] == seen and idle("shutil")
""",
    "by a part that the package knows how to import": """
from prometheus_client.asgi import make_asgi_app
from prometheus_client import exposition
assert exposition.make_asgi_app is make_asgi_app and idle("prometheus_client")
""",
    "by a part that lacks what it needs": """
import prometheus_client
sys.modules["twisted"] = sys.modules["twisted.web"] = None
assert not hasattr(prometheus_client, "twisted") and not hasattr(prometheus_client, "a.core")
assert prometheus_client.Gauge
""",
    "by parts of a package": """
from prometheus_client.registry import CollectorRegistry
from prometheus_client import metrics_core
import prometheus_client
assert idle("prometheus_client") and "prometheus_client.exposition" not in sys.modules
assert prometheus_client.registry.CollectorRegistry is prometheus_client.CollectorRegistry
assert not idle("prometheus_client") and not idle("ssl")
""",
    "unless it is not installed": """
late_modules.LATE = {"absent"}
try:
    import absent
except ModuleNotFoundError as error:
    assert "absent" == error.name
else:
    raise AssertionError
""",
    "if that fails at first": """
blocked, sys.modules["_ssl"] = sys.modules.pop("_ssl", None), None
try:
    ssl.SSLContext
except ImportError as error:
    assert "_ssl" in str(error)
else:
    raise AssertionError
del sys.modules["_ssl"]
assert ssl.SSLContext
""",
    "unless there is no OpenSSL": """
del sys.modules["ssl"]
from importlib.machinery import PathFinder
late_modules._BUILT_IN, PathFinder.find_spec = False, lambda *_: None
class Absent:
    def find_spec(name, *_):
        if name == "ssl":
            raise ModuleNotFoundError(name)
sys.meta_path.append(Absent)
try:
    import ssl
except ImportError:
    print("at once")
else:
    raise AssertionError
""",
}


def run(program: str, *words: str) -> None:
    command = [sys.executable, "-W", "error", "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert 0 == done.returncode, done.stderr


@pytest.mark.parametrize("use", _USES.values(), ids=_USES)
def test_a_late_module_is_as_if_it_had_been_imported(use: str) -> None:
    run(_BEGIN + use)


_TLS = """
import urllib.error
certificate, key = sys.argv[1:]
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.0 200 OK\\r\\n\\r\\nsecret")
    await writer.drain()
    writer.close()
async def serve():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    known = ssl.create_default_context(cafile=certificate)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=known)
    writer.write(b"GET / HTTP/1.0\\r\\n\\r\\n")
    assert b"secret" == (await reader.read()).partition(b"\\r\\n\\r\\n")[2]
    writer.close()
    def get(**context):
        return urllib.request.urlopen(f"https://127.0.0.1:{port}", timeout=60, **context).read()
    assert b"secret" == await asyncio.to_thread(get, context=known)
    try:
        await asyncio.to_thread(get)
    except urllib.error.URLError as error:
        assert isinstance(error.reason, ssl.SSLCertVerificationError)
    server.close()
asyncio.run(serve())
"""


@needs_openssl
def test_servers_and_clients_of_a_plugin_use_tls(tmp_path: Path) -> None:
    make(tmp_path)
    run(_BEGIN + _TLS, str(tmp_path / "ca.crt"), str(tmp_path / "key.pem"))
