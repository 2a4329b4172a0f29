"""Calls CUDA's driver, and prints what it says as a JSON object: devices, and ``error``.

It runs alone in a container, with nothing but Python's own library. ``cuda.py fault`` has a kernel
write where no memory is, which ends this process's use of the GPU and nobody else's.
"""

import ctypes
import json
import sys
import uuid
from typing import Any

_KERNEL = """
.version {version}
.target {target}
.address_size 64
.visible .entry accept(.param .u64 out)
{{
    .reg .u32 %n<3>;
    .reg .u64 %p<4>;
    ld.param.u64 %p1, [out];
    mov.u32 %n1, %tid.x;
    mad.lo.u32 %n2, %n1, %n1, 7;
    mul.wide.u32 %p2, %n1, 4;
    add.u64 %p3, %p1, %p2;
    st.global.u32 [%p3], %n2;
    ret;
}}
"""
"""Thread ``n`` writes ``n * n + 7``."""
_VERSIONS = (("5.0", "sm_50"), ("7.0", "sm_75"), ("8.0", "sm_90"))
"""PTX that drivers translate for newer GPUs. One may have given the oldest up."""
_THREADS = 256
_NOWHERE = 0x6660_0000_0000


class CudaError(Exception):
    """A call failed."""


class Cuda:
    """CUDA's driver."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"libcuda.so.1: {error}") from error

    def call(self, function: str, *arguments: Any) -> None:
        """Call a function, or raise CudaError."""
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise CudaError(f"{function}: not in this driver") from None
        if code:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            raise CudaError(f"{function}: {(name.value or b'error').decode()} ({code})")

    def number(self, function: str, *arguments: Any, kind: Any = ctypes.c_int) -> Any:
        """Return what a function writes to its first argument."""
        found = kind()
        self.call(function, ctypes.byref(found), *arguments)
        return found.value

    def describe(self, device: int) -> dict[str, Any]:
        """Return what identifies a device."""
        raw = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid_v2", ctypes.byref(raw), device)
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, len(text), device)
        name = text.value.decode(errors="replace")
        self.call("cuDeviceGetPCIBusId", text, len(text), device)
        return {
            "uuid": str(uuid.UUID(bytes=bytes(raw))),
            "name": name,
            "pci": text.value.decode(errors="replace").lower(),
            "memory": self.number("cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t),
        }

    def compute(self, device: int, *, faults: bool) -> None:
        """Run the kernel, and check what it wrote."""
        context = self.number("cuDevicePrimaryCtxRetain", device, kind=ctypes.c_void_p)
        self.call("cuCtxSetCurrent", ctypes.c_void_p(context))
        module = self._module()
        entry = self.number(
            "cuModuleGetFunction", ctypes.c_void_p(module), b"accept", kind=ctypes.c_void_p
        )
        size = 4 * _THREADS
        memory = self.number("cuMemAlloc_v2", ctypes.c_size_t(size), kind=ctypes.c_uint64)
        target = ctypes.c_uint64(_NOWHERE if faults else memory)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(target), ctypes.c_void_p))
        shape = map(ctypes.c_uint, (1, 1, 1, _THREADS, 1, 1, 0))
        self.call("cuLaunchKernel", ctypes.c_void_p(entry), *shape, None, parameters, None)
        self.call("cuCtxSynchronize")
        found = (ctypes.c_uint32 * _THREADS)()
        self.call(
            "cuMemcpyDtoH_v2", ctypes.byref(found), ctypes.c_uint64(memory), ctypes.c_size_t(size)
        )
        if [*found] != [n * n + 7 for n in range(_THREADS)]:
            raise CudaError("the kernel computed wrong numbers")
        self.call("cuMemFree_v2", ctypes.c_uint64(memory))
        self.call("cuDevicePrimaryCtxRelease_v2", device)

    def _module(self) -> Any:
        refused = CudaError("no kernel")
        for version, target in _VERSIONS:
            text = _KERNEL.format(version=version, target=target).encode()
            try:
                return self.number("cuModuleLoadData", text, kind=ctypes.c_void_p)
            except CudaError as error:
                refused = error
        raise refused


def main() -> None:
    """Print what CUDA says of all devices that it has here."""
    result: dict[str, Any] = {"devices": []}
    try:
        cuda = Cuda()
        cuda.call("cuInit", 0)
        version = cuda.number("cuDriverGetVersion")
        result["cuda"] = f"{version // 1000}.{version % 1000 // 10}"
        for ordinal in range(cuda.number("cuDeviceGetCount")):
            device = cuda.number("cuDeviceGet", ordinal)
            result["devices"].append(cuda.describe(device))
            cuda.compute(device, faults="fault" in sys.argv[1:])
    except CudaError as error:
        result["error"] = str(error)
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
