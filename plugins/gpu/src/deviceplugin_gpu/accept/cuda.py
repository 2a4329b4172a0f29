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


def call(function: str, *arguments: Any) -> None:
    """Call a function of the driver, or raise CudaError."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
        code = getattr(cuda, function)(*arguments)
    except (AttributeError, OSError) as error:  # not in this driver, or no driver
        raise CudaError(f"{function}: {error}") from error
    if code:
        name = ctypes.c_char_p()
        cuda.cuGetErrorName(code, ctypes.byref(name))
        raise CudaError(f"{function}: {(name.value or b'error').decode()} ({code})")


def number(function: str, *arguments: Any, kind: Any = ctypes.c_int) -> Any:
    """Return what a function writes to its first argument."""
    found = kind()
    call(function, ctypes.byref(found), *arguments)
    return found.value


def describe(device: int) -> dict[str, Any]:
    """Return what identifies a device."""
    raw, text = (ctypes.c_ubyte * 16)(), ctypes.create_string_buffer(256)
    call("cuDeviceGetUuid_v2", ctypes.byref(raw), device)
    found = {"uuid": str(uuid.UUID(bytes=bytes(raw)))}
    for key, function in {"name": "cuDeviceGetName", "pci": "cuDeviceGetPCIBusId"}.items():
        call(function, text, len(text), device)
        found[key] = text.value.decode(errors="replace")
    memory = number("cuDeviceTotalMem_v2", device, kind=ctypes.c_size_t)
    return {**found, "pci": found["pci"].lower(), "memory": memory}


def compute(device: int, *, faults: bool) -> None:
    """Run the kernel, and check what it wrote."""
    pointer, address, size = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t(4 * _THREADS)
    context = number("cuDevicePrimaryCtxRetain", device, kind=pointer)
    call("cuCtxSetCurrent", pointer(context))
    entry = number("cuModuleGetFunction", pointer(load()), b"accept", kind=pointer)
    memory = number("cuMemAlloc_v2", size, kind=address)
    target = address(_NOWHERE if faults else memory)
    parameters = (pointer * 1)(ctypes.cast(ctypes.byref(target), pointer))
    shape = map(ctypes.c_uint, (1, 1, 1, _THREADS, 1, 1, 0))
    call("cuLaunchKernel", pointer(entry), *shape, None, parameters, None)
    call("cuCtxSynchronize")
    found = (ctypes.c_uint32 * _THREADS)()
    call("cuMemcpyDtoH_v2", ctypes.byref(found), address(memory), size)
    if [*found] != [n * n + 7 for n in range(_THREADS)]:
        raise CudaError("the kernel computed wrong numbers")
    call("cuMemFree_v2", address(memory))
    call("cuDevicePrimaryCtxRelease_v2", device)


def load() -> Any:
    """Return the module of the kernel in the oldest form that this driver takes."""
    refused = CudaError("no kernel")
    for version, target in _VERSIONS:
        text = _KERNEL.format(version=version, target=target).encode()
        try:
            return number("cuModuleLoadData", text, kind=ctypes.c_void_p)
        except CudaError as error:
            refused = error
    raise refused


def main() -> None:
    """Print what CUDA says of all devices that it has here."""
    result: dict[str, Any] = {"devices": []}
    try:
        call("cuInit", 0)
        version = number("cuDriverGetVersion")
        result["cuda"] = f"{version // 1000}.{version % 1000 // 10}"
        for ordinal in range(number("cuDeviceGetCount")):
            device = number("cuDeviceGet", ordinal)
            result["devices"].append(describe(device))
            compute(device, faults="fault" in sys.argv[1:])
    except CudaError as error:
        result["error"] = str(error)
    print(json.dumps(result))  # noqa: T201


if __name__ == "__main__":
    main()
