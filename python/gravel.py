"""gravel.h for Python: a program says what it does, and `gravel run` watches that it does no more.

Every function does nothing when the program does not run under `gravel run`, so the calls can stay in. Addresses are
integers or anything with `data_ptr()` (a torch tensor), streams integers or anything with `cuda_stream`
(torch.cuda.Stream); no other package is needed. docs/canary.md explains regions and steps.

    keys = gravel.Region("index keys", tensor, page_bytes=16384)
    ...
    keys.allow_slots(slots, slots_per_page=64)    # what the step under way may change
    graph.replay()
    gravel.step(torch.cuda.current_stream())      # the step ends here
"""
import ctypes
import functools

CANARY, CHECKSUM = 1, 2  # GRAVEL_REGION_*

_number = ctypes.c_uint64
_allow_function = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64,
                                   ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t)
_kept = []


@functools.lru_cache(maxsize=None)
def _function(name, result, *arguments):
    """The recorder's function, or None when the recorder is not in this process."""
    try:
        function = getattr(ctypes.CDLL(None), "gravel_record_" + name)
    except (AttributeError, OSError):
        return None
    function.restype = result
    function.argtypes = list(arguments)
    return function


def _call(name, result, arguments, *values):
    function = _function(name, result, *arguments)
    return function(*values) if function else 0


def _address(memory):
    return memory.data_ptr() if hasattr(memory, "data_ptr") else int(memory)


def _stream(stream):
    if stream is None:
        return 0
    return int(getattr(stream, "cuda_stream", stream))


def _array(numbers):
    if hasattr(numbers, "tolist"):
        numbers = numbers.tolist()
    numbers = list(numbers)
    return (ctypes.c_int64 * max(len(numbers), 1))(*numbers), len(numbers)


def present():
    """Is the recorder in this process?"""
    return _function("arm_next", None) is not None


def arm_next():
    """Arms the next launch of each executable graph."""
    _call("arm_next", None, ())


def order_release(token):
    """What this thread enqueued comes before what is enqueued after a later order_acquire of the token."""
    _call("order", None, (_number, ctypes.c_int), token, 0)


def order_acquire(token):
    """The other half: see order_release."""
    _call("order", None, (_number, ctypes.c_int), token, 1)


def step(stream=None, group=0):
    """Ends a step: all it does to the regions of the group is enqueued on the stream, or ordered before this point."""
    _call("step", None, (_number, ctypes.c_void_p), group, _stream(stream))


class Region:
    """Device memory in pages of equal size, inside one allocation. `memory` is a tensor or an address.

    `bytes_` is needed with an address; of a tensor it is its size. `page_bytes` 0: one page. `canary=False`: only
    checksums look at it.
    """

    def __init__(self, name, memory, bytes_=None, page_bytes=0, group=0, canary=True):
        if bytes_ is None:
            bytes_ = memory.numel() * memory.element_size()
        what = (CANARY if canary else 0) | CHECKSUM
        self._callback = None
        self.id = _call("region_begin", _number, (ctypes.c_char_p, _number, _number, _number, ctypes.c_uint),
                        name.encode(), _address(memory), bytes_, page_bytes, what)
        if group:
            _call("region_group", None, (_number, _number), self.id, group)

    def end(self):
        """Ends it; call this before its memory is freed."""
        _call("region_end", None, (_number,), self.id)
        self.id = 0
        self._callback = None

    def allow_slots(self, slots, slots_per_page=1):
        """The step under way may change the pages of these slots (a list, or a tensor on the host)."""
        array, count = _array(slots)
        _call("allow_slots", None, (_number, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t, _number), self.id, array,
              count, slots_per_page)

    def allow_pages(self, pages):
        """The same by page numbers."""
        self.allow_slots(pages, 1)

    def allow_index(self, tensor, slots_per_page=1, count=None, index_bytes=None):
        """The same by a tensor of slots on the device (int32 or int64), which is read when the step ends."""
        if count is None:
            count = tensor.numel()
        if index_bytes is None:
            index_bytes = tensor.element_size()
        _call("allow_index", None, (_number, _number, ctypes.c_size_t, ctypes.c_uint, _number), self.id,
              _address(tensor), count, index_bytes, slots_per_page)

    def allow_all(self):
        """The step under way may change any page."""
        _call("allow_all", None, (_number,), self.id)

    def allow_callback(self, function):
        """function(step) returns the page numbers that the step may change; called when each step ends. None: off."""
        if function is None:
            self._callback = None
            _call("allow_callback", None, (_number, ctypes.c_void_p, ctypes.c_void_p), self.id, None, None)
            return
        asked = {}

        def pages_of(_user, number, pages, capacity):
            # An exception has no way through C: a step of which nothing is known may change everything.
            try:
                if asked.get("step") != number:
                    asked.update(step=number, pages=list(function(number)))
                found = asked["pages"]
                for i in range(len(found) if len(found) <= capacity else 0):
                    pages[i] = found[i]
                return len(found)
            except Exception as problem:  # pylint: disable=broad-except
                print("gravel: the function of allow_callback failed:", repr(problem))
                self.allow_all()
                return 0

        # Kept for good: another thread may be about to call it when the region ends.
        self._callback = _allow_function(pages_of)
        _kept.append(self._callback)
        _call("allow_callback", None, (_number, _allow_function, ctypes.c_void_p), self.id, self._callback, None)

    def transfer(self, pages=None):
        """A context: a transfer writes these pages (None: any) until it is left, which must be when it completed."""
        return _Transfer(self, pages)


class _Transfer:
    def __init__(self, region, pages):
        self._region, self._pages, self._id = region, pages, 0

    def __enter__(self):
        array, count = (None, 0) if self._pages is None else _array(self._pages)
        self._id = _call("transfer_begin", _number, (_number, ctypes.POINTER(ctypes.c_int64), ctypes.c_size_t),
                         self._region.id, array, count)
        return self

    def __exit__(self, *_exception):
        _call("transfer_end", None, (_number,), self._id)


# ---- Rows and padding (docs/padding.md) ----

ROWS_IN, ROWS_OUT, ROWS_INDEX, ZERO_IS_PAD, MINUS_ONE_IS_PAD, ONE_IS_PAD = 1, 2, 4, 8, 16, 64  # GRAVEL_ROWS_*
ALL_ROWS = (1 << 64) - 1


def _rows_of(memory, row_bytes, rows):
    """(address, bytes of a row, rows): of a tensor its first dimension, where its rows lie one behind the other."""
    if row_bytes is None:
        if not memory.is_contiguous():
            raise ValueError("give row_bytes and rows: the tensor is not contiguous")
        rows = memory.shape[0] if rows is None else rows
        row_bytes = memory.numel() * memory.element_size() // max(memory.shape[0], 1)
    return _address(memory), row_bytes, rows


def rows(name, memory, flags, row_bytes=None, rows=None):
    """Declares a static input (ROWS_IN) or output (ROWS_OUT) of graphs that is made of rows."""
    address, row_bytes, rows = _rows_of(memory, row_bytes, rows)
    _call("rows", None, (ctypes.c_char_p, _number, _number, _number, ctypes.c_uint), name.encode(), address, row_bytes,
          rows, flags)


def batch_rows(real, captured=ALL_ROWS):
    """How many rows are real in this thread's next launches, and how many their graphs were captured for."""
    _call("batch_rows", None, (_number, _number), real, captured)


def scratch(name, memory, bytes_=None):
    """Declares memory that holds nothing from one launch to the next."""
    if bytes_ is None:
        bytes_ = memory.numel() * memory.element_size()
    _call("scratch", None, (ctypes.c_char_p, _number, _number), name.encode(), _address(memory), bytes_)


# ---- Probes (docs/probes.md) ----

BYTES, F64, F32, F16, BF16, F8_E4M3, F8_E5M2, I64, I32, I8 = range(10)  # enum gravel_dtype
_DTYPES = {"float64": F64, "float32": F32, "float16": F16, "bfloat16": BF16, "float8_e4m3fn": F8_E4M3,
           "float8_e5m2": F8_E5M2, "int64": I64, "int32": I32, "int8": I8}


class Clone(ctypes.Structure):
    """A clone of a probed tensor. `torch.as_tensor(clone, device="cuda")` has its bytes, row by row; view them as the
    tensor's own type: `.view(torch.bfloat16)`."""
    _fields_ = [("address", _number), ("row_bytes", _number), ("rows", _number), ("bucket", _number),
                ("launches", _number), ("fallback", ctypes.c_int)]

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.rows, self.row_bytes), "typestr": "|u1", "data": (self.address, False), "version": 3}


def probe(name, layer, bucket, memory, row_bytes=None, rows=None, stream=None, into=0):
    """While `stream` captures a graph: clones the rows at this point of it. False: there is no such clone."""
    address, row_bytes, rows = _rows_of(memory, row_bytes, rows)
    arguments = (ctypes.c_char_p, _number, _number, _number, _number, _number, _number, ctypes.c_void_p)
    return bool(_call("probe", ctypes.c_int, arguments, name.encode(), layer, bucket, address, row_bytes, rows,
                      _address(into), _stream(stream)))


def probe_find(name, layer, bucket):
    """The clone of a key, that of the graph launched last where the bucket has none, or None."""
    clone = Clone()
    arguments = (ctypes.c_char_p, _number, _number, ctypes.POINTER(Clone))
    return clone if _call("probe_find", ctypes.c_int, arguments, name.encode(), layer, bucket,
                          ctypes.byref(clone)) else None


def probe_compare(name, layer, bucket, real_rows, eager, dtype=None, tolerance=0.0, stream=None):
    """Compares the clone's real rows with `eager`, once the stream's work is done: how many elements differ, or None
    where nothing was compared. `dtype` is that of the tensor unless it is given."""
    function = _function("probe_compare", ctypes.c_int64, ctypes.c_char_p, _number, _number, _number, _number,
                         ctypes.c_uint, ctypes.c_double, ctypes.c_void_p)
    if dtype is None:
        dtype = _DTYPES.get(str(getattr(eager, "dtype", "")).replace("torch.", ""), BYTES)
    found = function(name.encode(), layer, bucket, real_rows, _address(eager), dtype, tolerance,
                     _stream(stream)) if function else -1
    return None if found < 0 else found
