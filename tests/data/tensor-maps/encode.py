#!/usr/bin/env python3
"""Has NVIDIA's CuTe DSL (PyPI: nvidia-cutlass-dsl) encode tensor maps, and prints them with what they were made from.

    python3 encode.py tiled SEED > tiled.txt
    python3 encode.py im2col SEED > im2col.txt

Needs no GPU: the code that the DSL generates encodes a map on the host, into memory that is given. The test of
src/device/tensor_map.h reads the files; this is run by hand when more are wanted. A line is

    MODE bits=B interleave=I swizzle=S address=A dims=D0,.. strides=S1,.. box=B0,.. steps=T0,.. : WORD ...

with sizes in elements (of B bits) and strides in bytes, from dimension 1 on; `box` of an im2col map is the number of
channels alone; WORD are the map's 64-bit words, hexadecimal. Versions 4.8.1 made the files here.
"""
import ctypes
import os
import random
import sys

os.environ.setdefault("CUTE_DSL_ARCH", "sm_100a")
import cutlass  # noqa: E402
import cutlass._mlir.dialects.cute_nvgpu as nvgpu  # noqa: E402
import cutlass.cute as cute  # noqa: E402
from cutlass._mlir import ir  # noqa: E402
from cutlass.cute import core  # noqa: E402
from cutlass.cutlass_dsl import dsl_user_op  # noqa: E402

MAP_BYTES = 64


@dsl_user_op
def encode_at(tensor, layout, tile, out, corners=None, steps=None, *, loc=None, ip=None):
    """Emits the operation that encodes a map for `tensor` into the memory at `out`."""
    kind = "tiled" if corners is None else "im2col"
    shape = core.product_each(tensor.shape)
    view = core.composition(core.make_identity_layout(shape, loc=loc, ip=ip), tile, loc=loc, ip=ip)
    pointer = ir.Type.parse(f"!cute.ptr<!cute_nvgpu.tma_descriptor_{kind}, generic, align<64>>")
    target = ir.Operation.create("cute.recast_iter", results=[pointer], operands=[out.value])
    if isinstance(layout, core._ComposedLayout):
        layout = layout.value

    def pack(values):
        return core._pack_int_tuple(values, loc=loc, ip=ip)

    if corners is None:
        mode = ir.Attribute.parse("#cute_nvgpu.tma_load_mode<tiled>")
        extra = {"traversal_stride": pack(steps)} if steps else {}
        nvgpu.make_tma_desc_tiled_at(tensor.value, layout, view, target, mode, **extra)
    else:
        nvgpu.make_tma_desc_im2col_at(tensor.value, layout, view, *[pack(v) for v in corners], target)


def encode(dtype, address, shape, stride, layout, tile, **options):
    """The words of the map."""

    @cute.jit
    def host(base: cute.Pointer, out: cute.Pointer):
        tensor = cute.make_tensor(base, cute.make_layout(shape, stride=stride))
        encode_at(tensor, layout(), tile, out, **options)

    buffer = (ctypes.c_uint64 * 32)()
    at = (ctypes.addressof(buffer) + 63) // 64 * 64
    arguments = (
        cute.runtime.make_ptr(dtype, address, cute.AddressSpace.gmem, assumed_align=16),
        cute.runtime.make_ptr(cutlass.Int8, at, cute.AddressSpace.generic, assumed_align=64),
    )
    cute.compile(host, *arguments)(*arguments)
    return list((ctypes.c_uint64 * (MAP_BYTES // 8)).from_address(at))


TYPES = {
    "Uint8": 8, "Int8": 8, "Float8E4M3FN": 8, "Float8E5M2": 8, "Uint16": 16, "Float16": 16, "BFloat16": 16,
    "Int32": 32, "Uint32": 32, "Float32": 32, "TFloat32": 32, "Int64": 64, "Uint64": 64, "Float64": 64,
    "Float4E2M1FN": 4, "Float6E3M2FN": 6,
}


def line(mode, bits, swizzle, address, dims, strides, box, steps, words):
    def join(values):
        return ",".join(str(value) for value in values)

    print(f"{mode} bits={bits} interleave=0 swizzle={swizzle} address={address:#x} dims={join(dims)} "
          f"strides={join(strides)} box={join(box)} steps={join(steps)} : {' '.join(f'{w:016x}' for w in words)}",
          flush=True)


def shared_layout(swizzle, shape, stride):
    if swizzle:
        return lambda: cute.make_composed_layout(cute.make_swizzle(swizzle, 4, 3), 0,
                                                 cute.make_layout(shape, stride=stride))
    return lambda: cute.make_layout(shape, stride=stride)


def random_address(choose):
    return choose.randrange(1 << 20, 1 << 47) // 128 * 128 + choose.choice((0, 0, 0, 32, 64, 96))


def tiled(choose):
    name = choose.choice(sorted(TYPES))
    bits = TYPES[name]
    rank = choose.randint(1, 5)
    # Mode 1 of the tensor, or its only one, is contiguous: dimension 0 of the map; the others follow in order.
    order = [0] if rank == 1 else [1, 0] + list(range(2, rank))
    swizzle = choose.choice((0, 1, 2, 3)) if rank > 1 and bits >= 8 else 0
    if bits < 8:
        inner = 128
    elif swizzle:
        inner = (16 << swizzle) * 8 // bits
    else:
        inner = choose.choice((16, 32, 64, 128)) * 8 // bits
    box = [inner] + [choose.choice((1, 2, 4, 8, 16) if rank > 2 else (1, 8, 64, 256)) for _ in range(rank - 1)]
    while any(size == 1 for size in box[1:]):  # a box of one element leaves the DSL no mode to keep
        box = [inner] + [choose.choice((2, 4, 8)) for _ in range(rank - 1)]
    unit = {4: 128, 6: 128}.get(bits, 1)
    dims = [max(unit, choose.randint(inner, 1 << choose.randint(8, 20)) // unit * unit if inner < 256 else 256)]
    dims += [choose.randint(box[i], 1 << choose.randint(9, 18 if rank < 4 else 11)) for i in range(1, rank)]
    # Strides in elements, whole multiples of 16 bytes (32 for the packed types). There is padding behind every row and
    # every plane, as the DSL makes one dimension of two that adjoin.
    grain = {4: 64, 6: 128}.get(bits, 128 // bits)
    strides = [1]
    reach = dims[0]
    for i in range(1, rank):
        stride = (reach + grain - 1) // grain * grain + choose.choice((1, 1, 2, 64)) * grain
        strides.append(stride)
        reach = stride * dims[i]
    if strides[-1] * bits // 8 >= 1 << 40:
        return False
    permuted = [0] * rank
    step, smem = 1, [0] * rank
    for i, mode in enumerate(order):
        permuted[mode] = i
    for i in range(rank):
        smem[order[i]] = step
        step *= box[i]
    shape = tuple(dims[permuted[mode]] for mode in range(rank))
    stride = tuple(strides[permuted[mode]] for mode in range(rank))
    tile = tuple(box[permuted[mode]] for mode in range(rank))
    if step * max(bits, 8) // 8 > 1 << 17:
        return False
    # The traversal stride of dimension 0 must be 1; a box of N elements with stride T is encoded as N * T.
    steps = [1] * rank
    options = {}
    if rank > 1 and bits >= 8 and choose.random() < 0.3:
        steps = [1] + [choose.choice((1, 2, 3)) for _ in range(rank - 1)]
        if all(size * by <= 256 for size, by in zip(box, steps)):
            options["steps"] = tuple(steps)  # in the order of the map
        else:
            steps = [1] * rank
    address = random_address(choose)
    words = encode(getattr(cutlass, name), address, shape, stride,
                   shared_layout(swizzle, tile, tuple(smem)), tile, **options)
    line("tiled", bits, swizzle, address, dims, [s * bits // 8 for s in strides[1:]],
         [size * by for size, by in zip(box, steps)], steps, words)
    return True


def im2col(choose):
    name = choose.choice(("Float16", "BFloat16", "Float32", "Uint8"))
    bits = TYPES[name]
    spatial = choose.randint(1, 3)
    swizzle = choose.choice((1, 2, 3))
    channels = (16 << swizzle) * 8 // bits
    pixels = choose.choice((8, 64, 128, 256))
    total = channels * choose.randint(1, 4)
    sizes = [choose.randint(8, 40) for _ in range(spatial)] + [choose.randint(1, 9)]
    strides, reach = [], total
    for size in sizes:
        strides.append(reach)
        reach *= size
    low = {1: 100, 2: 100, 3: 15}[spatial]
    corners = (
        tuple(choose.randint(-low, low) for _ in range(spatial)),
        tuple(choose.randint(-low, low) for _ in range(spatial)),
        (0,) * spatial,
        (0,) * spatial,
        tuple(choose.choice((1, 1, 2, 3)) for _ in range(spatial)),
        (0,) * spatial,
        (1,) * spatial,
    )
    address = random_address(choose)
    tile = (pixels, channels)
    words = encode(getattr(cutlass, name), address, (tuple(sizes), total), (tuple(strides), 1),
                   shared_layout(swizzle, tile, (channels, 1)), tile, corners=corners)
    line("im2col", bits, swizzle, address, [total] + sizes, [s * bits // 8 for s in strides], [channels],
         [1, *corners[4], 1], words)
    return True


def main():
    mode, seed = sys.argv[1], int(sys.argv[2])
    choose = random.Random(seed)
    wanted, made = (150 if mode == "tiled" else 60), 0
    while made < wanted:
        try:
            made += {"tiled": tiled, "im2col": im2col}[mode](choose)
        except Exception as error:  # the DSL refuses some combinations
            print("#", " ".join(str(error).split())[:160], file=sys.stderr)


main()
