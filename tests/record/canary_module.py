"""A program in Python that declares its pages through python/gravel.py: canary_module.py PYTHON-FOLDER clean|buggy.

Page 3 is set in each step and declared by turns in each of the ways that there are; the buggy one sets page 5 too, in step 4.
"""
import ctypes
import sys

sys.path.insert(0, sys.argv[1])
import gravel  # noqa: E402

BUGGY = sys.argv[2] == "buggy"
PAGE, PAGES, CHANGED = 4096, 8, 3

cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result:
        sys.exit("%s: error %d" % (name, result))


class Tensor:
    """As much of a tensor as the module looks at."""

    def __init__(self, bytes_):
        address = ctypes.c_uint64()
        call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(bytes_))
        self.address, self.bytes = address.value, bytes_

    def data_ptr(self):
        return self.address

    def numel(self):
        return self.bytes // 8

    def element_size(self):
        return 8


def set_page(page, value):
    call("cuMemsetD8_v2", ctypes.c_uint64(pool.address + page * PAGE), ctypes.c_ubyte(value), ctypes.c_size_t(PAGE))


call("cuInit", 0)
device, context = ctypes.c_int(), ctypes.c_void_p()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
pool, index = Tensor(PAGE * PAGES), Tensor(16)
slots = (ctypes.c_int64 * 2)(CHANGED * 16, -1)
call("cuMemcpyHtoD_v2", ctypes.c_uint64(index.address), slots, ctypes.c_size_t(16))
assert gravel.present()
region = gravel.Region("pool", pool, page_bytes=PAGE)
asked = []


def pages_of(step):
    asked.append(step)
    return [CHANGED]


for step in range(1, 9):
    if step % 4 == 0:
        region.allow_pages([CHANGED])
    elif step % 4 == 1:
        region.allow_index(index, slots_per_page=16)
    elif step % 4 == 2:
        region.allow_callback(pages_of)
    else:
        region.allow_callback(None)
        region.allow_slots([CHANGED * 16 + 15], slots_per_page=16)
    set_page(CHANGED, step)
    if BUGGY and step == 4:
        set_page(5, step)
    with region.transfer([1]):
        set_page(1, step)
        call("cuCtxSynchronize")  # a set of device memory may still be under way when its call has returned
    gravel.step()
region.end()
assert asked == [2, 6], asked
print("done")
