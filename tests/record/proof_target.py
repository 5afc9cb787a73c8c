"""Rows, scratch memory and a probe through python/gravel.py. usage: proof_target.py KERNELS

A graph for four rows doubles them; two are real. Prints what the probe says: `made N equal N fallback N`.
"""
import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import gravel  # noqa: E402

cuda = ctypes.CDLL("libcuda.so.1")
ROWS, WIDTH = 4, 8
ROW = WIDTH * 4


def check(result):
    if result:
        raise RuntimeError(f"CUDA error {result}")


def new(kind, make, *arguments):
    made = kind()
    check(make(ctypes.byref(made), *arguments))
    return made


def buffer():
    memory = new(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(ROWS * ROW))
    check(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0x3f), ctypes.c_size_t(ROWS * ROW)))
    check(cuda.cuCtxSynchronize())
    return memory


def double(source, to):
    values = [source, to, ctypes.c_int(ROWS), ctypes.c_int(WIDTH)]
    packed = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in values))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, ROWS * WIDTH, 1, 1, 0, stream, packed, None))


check(cuda.cuInit(0))
device = new(ctypes.c_int, cuda.cuDeviceGet, 0)
context = new(ctypes.c_void_p, cuda.cuDevicePrimaryCtxRetain, device)
check(cuda.cuCtxSetCurrent(context))
module = new(ctypes.c_void_p, cuda.cuModuleLoad, sys.argv[1].encode())
kernel = new(ctypes.c_void_p, cuda.cuModuleGetFunction, module, b"double_rows")
stream = new(ctypes.c_void_p, cuda.cuStreamCreate, 1)
source, between, out, eager = buffer(), buffer(), buffer(), buffer()
gravel.rows("in", source.value, gravel.ROWS_IN, ROW, ROWS)
gravel.rows("out", out.value, gravel.ROWS_OUT, ROW, ROWS)
gravel.scratch("between", between.value, ROWS * ROW)

check(cuda.cuStreamBeginCapture_v2(stream, 0))
made = gravel.probe("in", 1, ROWS, source.value, ROW, ROWS, stream=stream.value)
double(source, between)
double(between, out)
made += gravel.probe("out", 1, ROWS, out.value, ROW, ROWS, stream=stream.value)
graph = new(ctypes.c_void_p, lambda graph: cuda.cuStreamEndCapture(stream, graph))
exec_ = new(ctypes.c_void_p, cuda.cuGraphInstantiateWithFlags, graph, ctypes.c_ulonglong(0))
gravel.batch_rows(2, ROWS)
for _ in range(2):
    check(cuda.cuGraphLaunch(exec_, stream))
    check(cuda.cuStreamSynchronize(stream))

clone = gravel.probe_find("in", 1, 2 * ROWS)  # a bucket that has none
if clone:
    assert clone.__cuda_array_interface__["shape"] == (ROWS, ROW)
    double(ctypes.c_uint64(clone.address), between)
    double(between, eager)
equal = gravel.probe_compare("out", 1, ROWS, 2, eager.value, gravel.F32, stream=stream.value)
print(f"made {made} equal {equal} fallback {clone.fallback if clone else None}")
