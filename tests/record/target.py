"""The scratch-buffer race of target.c from Python, through ctypes. usage: target.py KERNELS"""

import ctypes
import sys

cuda = ctypes.CDLL("libcuda.so.1")
COUNT, BYTES = 1024, 4096


def check(result):
    if result:
        raise RuntimeError(f"CUDA error {result}")


def new(kind, make, *arguments):
    made = kind()
    check(make(ctypes.byref(made), *arguments))
    return made


def buffer():
    return new(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(BYTES))


def stream():
    return new(ctypes.c_void_p, cuda.cuStreamCreate, 1)


def pack(values):
    return (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))


def launch_fill(function, on, to, value):
    values = [to, ctypes.c_int(COUNT), ctypes.c_int(value)]
    check(cuda.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, on, pack(values), None))  # LAUNCH:fill


def launch_add(function, on, source, sums):
    values = [source, sums, ctypes.c_int(COUNT)]
    check(cuda.cuLaunchKernel(function, 4, 1, 1, 256, 1, 1, 0, on, pack(values), None))  # LAUNCH:add


def join(waiting, behind):
    event = new(ctypes.c_void_p, cuda.cuEventCreate, 2)
    check(cuda.cuEventRecord(event, behind))
    check(cuda.cuStreamWaitEvent(waiting, event, 0))


check(cuda.cuInit(0))
device = new(ctypes.c_int, cuda.cuDeviceGet, 0)
context = new(ctypes.c_void_p, cuda.cuDevicePrimaryCtxRetain, device)
check(cuda.cuCtxSetCurrent(context))
module = new(ctypes.c_void_p, cuda.cuModuleLoad, sys.argv[1].encode())
fill = new(ctypes.c_void_p, cuda.cuModuleGetFunction, module, b"fill")
add_one = new(ctypes.c_void_p, cuda.cuModuleGetFunction, module, b"add_one")
main, side = stream(), stream()
scratch, left, right = buffer(), buffer(), buffer()

check(cuda.cuStreamBeginCapture_v2(main, 0))
join(side, main)
launch_fill(fill, side, scratch, 1)
launch_add(add_one, side, scratch, left)
launch_fill(fill, main, scratch, 5)
launch_add(add_one, main, scratch, right)
join(main, side)
graph = new(ctypes.c_void_p, lambda out: cuda.cuStreamEndCapture(main, out))
execution = new(ctypes.c_void_p, cuda.cuGraphInstantiateWithFlags, graph, ctypes.c_uint64(0))
check(cuda.cuGraphDestroy(graph))
check(cuda.cuGraphLaunch(execution, main))
check(cuda.cuStreamSynchronize(main))
