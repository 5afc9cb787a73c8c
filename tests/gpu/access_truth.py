"""Operations whose true access sets follow from their shapes, each captured in a graph of its own and replayed once.

usage: access_truth.py. Prints one JSON line a case: its name, and for each tensor its storage, the bytes the operation
must read and write there, in the order in which the graphs are captured. check.py compares them with what gravel
recorded. Every tensor lies in a larger storage, so that an access beside it is seen too; gaps between the rows of a
pitched matrix are such places.
"""

import json
import sys

import torch
import torch.nn.functional as F

BF16, FP32, FP8 = torch.bfloat16, torch.float32, torch.float8_e4m3fn
GUARD = 8192
torch.manual_seed(0)


class Tensor:
    """A tensor inside a storage of its own, with what an operation is expected to do to it."""

    def __init__(self, shape, dtype=BF16, pitch=None, fill=None):
        self.dtype, size = dtype, torch.empty(0, dtype=dtype).element_size()
        pitch = pitch or shape[-1]
        rows = 1
        for extent in shape[:-1]:
            rows *= extent
        guard = GUARD // size
        self.storage = torch.zeros(rows * pitch + 2 * guard, device="cuda", dtype=dtype)
        inner = self.storage[guard:guard + rows * pitch].view(*shape[:-1], pitch)
        self.data = inner[..., :shape[-1]]
        if fill is not None:
            self.data.copy_(fill)
        elif dtype.is_floating_point:
            self.data.copy_((torch.randn(*shape, device="cuda") * 0.5).to(dtype))
        self.reads, self.writes = [], []

    def ranges(self, view=None):
        """The bytes of a view of the tensor, joined and in order."""
        view = self.data if view is None else view
        size = view.element_size()
        offsets = torch.zeros(1, dtype=torch.int64)
        for extent, stride in zip(view.shape, view.stride()):
            if stride:
                offsets = (offsets[:, None] + torch.arange(extent)[None, :] * stride).reshape(-1)
        offsets = torch.unique(offsets) * size + view.data_ptr()
        breaks = torch.nonzero(offsets[1:] - offsets[:-1] != size).reshape(-1).tolist()
        starts, ends = [0] + [at + 1 for at in breaks], breaks + [len(offsets) - 1]
        return [[int(offsets[a]), int(offsets[b]) + size] for a, b in zip(starts, ends)]

    def read(self, *views):
        self.reads += [piece for view in views or (None,) for piece in self.ranges(view)]
        return self

    def write(self, *views):
        self.writes += [piece for view in views or (None,) for piece in self.ranges(view)]
        return self

    def row(self, name):
        start = self.storage.data_ptr()
        row = {"name": name, "storage": [start, start + self.storage.numel() * self.storage.element_size()],
               "reads": sorted(self.reads), "writes": sorted(self.writes)}
        if self.data.dtype == torch.int64:
            row["low_halves"] = [[at, at + 4] for start, end in row["reads"] for at in range(start, end, 8)]
        return row


CASES = []


def case(function):
    CASES.append((function.__name__.replace("_", " "), function))
    return function


def indices(*values, dtype=torch.int64):
    return Tensor((len(values),), dtype=dtype, fill=torch.tensor(values, device="cuda", dtype=dtype)).read()


# Each case returns its tensors by name, and the operation.

# ---- Copies and fills ----

@case
def copy_contiguous():
    a, out = Tensor((256, 512)).read(), Tensor((256, 512)).write()
    return {"a": a, "out": out}, lambda: out.data.copy_(a.data)


@case
def copy_from_pitched_rows():
    a, out = Tensor((100, 96), pitch=128).read(), Tensor((100, 96)).write()
    return {"a": a, "out": out}, lambda: out.data.copy_(a.data)


@case
def copy_to_a_column_slice():
    a, out = Tensor((64, 40)).read(), Tensor((64, 256))
    part = out.data[:, 100:140]
    out.write(part)
    return {"a": a, "out": out}, lambda: part.copy_(a.data)


@case
def copy_with_conversion():
    a, out = Tensor((333, 77), FP32).read(), Tensor((333, 77)).write()
    return {"a": a, "out": out}, lambda: out.data.copy_(a.data)


@case
def copy_transposed():
    a, out = Tensor((96, 200)).read(), Tensor((200, 96)).write()
    return {"a": a, "out": out}, lambda: out.data.copy_(a.data.t())


@case
def fill_constant():
    out = Tensor((1000, 33), FP32).write()
    return {"out": out}, lambda: out.data.fill_(3)


@case
def zero_by_memset():
    out = Tensor((1 << 16,), FP32).write()
    return {"out": out}, lambda: out.data.zero_()


@case
def zero_every_other_row():
    out = Tensor((64, 128))
    part = out.data[::2]
    out.write(part)
    return {"out": out}, lambda: part.zero_()


@case
def concatenate():
    a, b, out = Tensor((64, 100)).read(), Tensor((64, 28)).read(), Tensor((64, 128)).write()
    return {"a": a, "b": b, "out": out}, lambda: torch.cat([a.data, b.data], dim=1, out=out.data)


# ---- Element-wise ----

@case
def add_in_place():
    a, out = Tensor((300, 300)).read(), Tensor((300, 300)).read().write()
    return {"a": a, "out": out}, lambda: out.data.add_(a.data)


@case
def multiply_by_a_broadcast_row():
    a, row, out = Tensor((128, 384)).read(), Tensor((384,)).read(), Tensor((128, 384)).write()
    return {"a": a, "row": row, "out": out}, lambda: torch.mul(a.data, row.data, out=out.data)


@case
def select_by_a_mask():
    mask = Tensor((4096,), torch.bool, fill=torch.arange(4096, device="cuda") % 3 == 0).read()
    a, out = Tensor((4096,), FP32).read(), Tensor((4096,), FP32).write()
    return {"mask": mask, "a": a, "out": out}, lambda: torch.where(mask.data, a.data, a.data, out=out.data)


@case
def gelu_of_odd_size():
    a, out = Tensor((12345,)).read(), Tensor((12345,)).write()
    return {"a": a, "out": out}, lambda: torch.ops.aten.gelu.out(a.data, out=out.data)


# ---- Reductions and norms ----

@case
def sum_of_all():
    a, out = Tensor((1 << 20,), FP32).read(), Tensor((1,), FP32).write()
    return {"a": a, "out": out}, lambda: torch.sum(a.data, dim=0, keepdim=True, out=out.data)


@case
def sum_over_rows():
    a, out = Tensor((512, 300), FP32).read(), Tensor((300,), FP32).write()
    return {"a": a, "out": out}, lambda: torch.sum(a.data, dim=0, out=out.data)


@case
def sum_over_columns_of_pitched_rows():
    a, out = Tensor((512, 300), FP32, pitch=320).read(), Tensor((512,), FP32).write()
    return {"a": a, "out": out}, lambda: torch.sum(a.data, dim=1, out=out.data)


@case
def largest_with_index():
    a, out, at = Tensor((64, 1000), FP32).read(), Tensor((64,), FP32).write(), Tensor((64,), torch.int64).write()
    return {"a": a, "out": out, "at": at}, lambda: torch.max(a.data, dim=1, out=(out.data, at.data))


@case
def soft_max():
    a, out = Tensor((64, 1024), FP32).read(), Tensor((64, 1024), FP32).write()
    return {"a": a, "out": out}, lambda: torch.softmax(a.data, dim=1, out=out.data)


@case
def layer_norm():
    a, weight, bias = Tensor((40, 1024)).read(), Tensor((1024,)).read(), Tensor((1024,)).read()
    out, mean, scale = Tensor((40, 1024)).write(), Tensor((40, 1), FP32).write(), Tensor((40, 1), FP32).write()
    return ({"a": a, "weight": weight, "bias": bias, "out": out, "mean": mean, "scale": scale},
            lambda: torch.ops.aten.native_layer_norm.out(a.data, [1024], weight.data, bias.data, 1e-5, out0=out.data,
                                                         out1=mean.data, out2=scale.data))


@case
def running_sum():
    a, out = Tensor((16, 2000), FP32).read(), Tensor((16, 2000), FP32).write()
    return {"a": a, "out": out}, lambda: torch.cumsum(a.data, dim=1, out=out.data)


# ---- Indices ----

@case
def select_rows():
    a, at, out = Tensor((512, 128)), indices(3, 77, 400, 511, 0), Tensor((5, 128)).write()
    a.read(*[a.data[row:row + 1] for row in (0, 3, 77, 400, 511)])
    return {"a": a, "at": at, "out": out}, lambda: torch.index_select(a.data, 0, at.data, out=out.data)


@case
def embedding():
    a, at = Tensor((1000, 256)), indices(5, 999, 5, 6)
    a.read(a.data[5:7], a.data[999:])
    return {"a": a, "at": at}, lambda: F.embedding(at.data, a.data)


@case
def gather_elements():
    a = Tensor((8, 64), FP32)
    at = Tensor((8, 2), torch.int64, fill=torch.tensor([[1, 60]] * 8, device="cuda")).read()
    a.read(a.data[:, 1:2], a.data[:, 60:61])
    out = Tensor((8, 2), FP32).write()
    return {"a": a, "at": at, "out": out}, lambda: torch.gather(a.data, 1, at.data, out=out.data)


@case
def store_rows_by_index():
    a, at, out = Tensor((3, 128)).read(), indices(9, 2, 63), Tensor((64, 128))
    out.write(*[out.data[row:row + 1] for row in (2, 9, 63)])
    return {"a": a, "at": at, "out": out}, lambda: out.data.index_copy_(0, at.data, a.data)


@case
def store_a_cache_slot():
    a, at, out = Tensor((2, 8, 64)).read(), indices(17, 40), Tensor((64, 8, 64))
    out.write(out.data[17:18], out.data[40:41])
    return {"a": a, "at": at, "out": out}, lambda: out.data.index_put_((at.data,), a.data)


@case
def add_rows_atomically():
    a, at, out = Tensor((4, 64), FP32).read(), indices(1, 1, 5, 30), Tensor((32, 64), FP32)
    touched = [out.data[row:row + 1] for row in (1, 5, 30)]
    out.read(*touched).write(*touched)
    return {"a": a, "at": at, "out": out}, lambda: out.data.index_add_(0, at.data, a.data)


@case
def top_k():
    a = Tensor((4, 2048), FP32).read()
    out, at = Tensor((4, 64), FP32).write(), Tensor((4, 64), torch.int64).write()
    return {"a": a, "out": out, "at": at}, lambda: torch.topk(a.data, 64, dim=1, out=(out.data, at.data))


# ---- Matrix products ----

def product(m, n, k, dtype=BF16, pitch=None):
    a, b = Tensor((m, k), dtype, pitch=pitch).read(), Tensor((n, k), dtype).read()
    out = Tensor((m, n), dtype).write()
    return {"a": a, "b": b, "out": out}, lambda: torch.mm(a.data, b.data.t(), out=out.data)


@case
def product_of_one_row():
    return product(1, 4096, 1024)


@case
def product_decode_shape():
    return product(32, 4096, 4096)


@case
def product_square():
    return product(2048, 2048, 2048)


@case
def product_of_odd_sizes():
    return product(200, 328, 136)


@case
def product_of_pitched_rows():
    return product(256, 512, 448, pitch=512)


@case
def product_fp32():
    return product(128, 256, 512, FP32)


@case
def product_with_bias():
    tensors, _ = product(64, 1024, 512)
    bias = tensors["bias"] = Tensor((1024,)).read()
    a, b, out = (tensors[name].data for name in ("a", "b", "out"))
    return tensors, lambda: torch.addmm(bias.data, a, b.t(), out=out)


@case
def product_batched():
    a, b, out = Tensor((16, 64, 128)).read(), Tensor((16, 128, 96)).read(), Tensor((16, 64, 96)).write()
    return {"a": a, "b": b, "out": out}, lambda: torch.bmm(a.data, b.data, out=out.data)


@case
def product_fp8():
    a = Tensor((64, 1024), FP8, fill=torch.randn(64, 1024, device="cuda").to(FP8)).read()
    b = Tensor((512, 1024), FP8, fill=torch.randn(512, 1024, device="cuda").to(FP8)).read()
    one = Tensor((1,), FP32, fill=torch.ones(1, device="cuda"))
    out = Tensor((64, 512)).write()
    scale = one.data.reshape(())
    return ({"a": a, "b": b, "out": out},
            lambda: torch._scaled_mm(a.data, b.data.t(), scale_a=scale, scale_b=scale, out_dtype=BF16, out=out.data))


# ---- Attention ----

def attention(backend, queries, keys, heads=8, width=128):
    q = Tensor((2, heads, queries, width)).read()
    k, v = Tensor((2, heads, keys, width)).read(), Tensor((2, heads, keys, width)).read()
    return {"q": q, "k": k, "v": v}, backend, lambda: F.scaled_dot_product_attention(q.data, k.data, v.data)


def with_backend(tensors, backend, run):
    def call():
        with torch.nn.attention.sdpa_kernel(backend):
            return run()
    return tensors, call


@case
def attention_flash_decode():
    return with_backend(*attention(torch.nn.attention.SDPBackend.FLASH_ATTENTION, 1, 1024))


@case
def attention_flash_prefill():
    return with_backend(*attention(torch.nn.attention.SDPBackend.FLASH_ATTENTION, 256, 256))


@case
def attention_cudnn_decode():
    return with_backend(*attention(torch.nn.attention.SDPBackend.CUDNN_ATTENTION, 1, 1024))


@case
def attention_cudnn_prefill():
    return with_backend(*attention(torch.nn.attention.SDPBackend.CUDNN_ATTENTION, 256, 256))


@case
def attention_memory_efficient():
    return with_backend(*attention(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION, 64, 512))


# ---- Triton: masks, and tensor maps that the kernel makes in global memory ----

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton:
    @triton.jit
    def scale_masked(source, target, count, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = at < count
        tl.store(target + at, tl.load(source + at, mask=inside) * 2, mask=inside)

    @triton.jit
    def copy_by_descriptor(source, target, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
        take = tl.make_tensor_descriptor(source, [rows, columns], [columns, 1], [ROWS, COLUMNS])
        give = tl.make_tensor_descriptor(target, [rows, columns], [columns, 1], [ROWS, COLUMNS])
        give.store([row, column], take.load([row, column]))

    @case
    def triton_with_a_mask():
        a, out = Tensor((10001,), FP32).read(), Tensor((10001,), FP32).write()
        return {"a": a, "out": out}, lambda: scale_masked[(10,)](a.data, out.data, 10001, BLOCK=1024)

    @case
    def triton_with_tensor_maps():
        a, out = Tensor((200, 328)).read(), Tensor((200, 328)).write()
        return {"a": a, "out": out}, lambda: copy_by_descriptor[(4, 6)](a.data, out.data, 200, 328, ROWS=64, COLUMNS=64)

    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))


def main():
    kept = []
    for name, make in CASES:
        tensors, run = make()
        if name in ("embedding",) or name.startswith("attention"):
            result = []
        try:
            with torch.no_grad():
                for _ in range(2):
                    run()
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    result = run()
        except (RuntimeError, TypeError) as error:
            print("refused %s: %s" % (name, str(error).splitlines()[0]), flush=True)
            torch.cuda.synchronize()
            continue
        rows = [tensor.row(label) for label, tensor in tensors.items()]
        if isinstance(result, torch.Tensor) and not any(row["writes"] for row in rows):
            # An output that the operation allocates itself: all of it is written.
            start, size = result.data_ptr(), result.numel() * result.element_size()
            rows.append({"name": "result", "storage": [start, start + size], "reads": [],
                         "writes": [[start, start + size]]})
        graph.replay()
        torch.cuda.synchronize()
        kept.append((graph, tensors, result))
        print("case " + json.dumps({"name": name, "tensors": rows}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
