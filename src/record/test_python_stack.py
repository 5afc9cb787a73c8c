"""Python frames in call stacks, with a real interpreter.

usage: test_python_stack.py PROBE_LIBRARY [PYTHON...]

Runs every case below in a child interpreter into which the probe library (test_stack_probe.c) is preloaded, for this
interpreter and each PYTHON named: cold, and warm after WARM_UP captures, when python_stack.c has seen enough to walk
the interpreter's frames itself. A case fails when its assertions fail, and when the child writes anything or dies.
"""

import ctypes
import os
import subprocess
import sys
import tempfile

WARM_UP = 20


class Probe:
    """The preloaded library: `unlocked` releases the interpreter lock during a call, `locked` keeps it."""

    def __init__(self, warm):
        self.warm = warm
        self.unlocked, self.locked = ctypes.CDLL(None), ctypes.PyDLL(None)
        for library in (self.unlocked, self.locked):
            library.probe_open.argtypes = [ctypes.c_char_p]
            library.probe_capture.restype = library.probe_on_thread.restype = ctypes.c_uint64
            library.probe_on_thread.argtypes = [ctypes.c_void_p]
            library.probe_describe.restype = ctypes.c_size_t
            library.probe_describe.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
        handle, self.path = tempfile.mkstemp(prefix="gravel-test-python-")
        os.close(handle)
        assert self.unlocked.probe_open(self.path.encode()) == 0
        for _ in range(WARM_UP if warm else 0):
            self.locked.probe_capture()

    def frames(self, ids):
        """Ends the trace and returns the frames of each stack id as (file, line, function), innermost first."""
        assert self.unlocked.probe_close() == 0
        result = []
        for id in ids:
            assert id != 0
            text = ctypes.create_string_buffer(1 << 20)
            count = self.unlocked.probe_describe(self.path.encode(), id, text, len(text))
            frames = []
            for line in text.value.decode().splitlines():
                file, number, function = line.split("\t")
                frames.append((file, int(number), function))
            assert len(frames) == count
            result.append(frames)
        os.unlink(self.path)
        return result


def line():
    """The caller's line number."""
    return sys._getframe(1).f_lineno


# What this interpreter lets a thread without the interpreter lock see: everything, except in versions that export
# nothing but functions which need the lock.
def sees_without_lock():
    exported = ctypes.CDLL(None)
    return (hasattr(exported, "_Py_DumpTraceback") or hasattr(exported, "PyUnstable_DumpTraceback")
            or sys.version_info[:2] == (3, 13))


def check(frames, *expected):
    """The innermost frames are `expected`, the outermost is this module."""
    assert frames[:len(expected)] == list(expected), (frames, expected)
    assert frames[-1][2] == "<module>" and frames[-1][0] == __file__, frames


def each_lock(probe):
    return [probe.locked] + ([probe.unlocked] if sees_without_lock() else [])


# ---- Cases: functions whose name begins with case_ -------------------------------------------------------------

def case_nested_calls(probe):
    places = []

    def inner(library):
        places.append(line() + 1)
        return library.probe_capture()

    class Model:
        def forward(self, library):
            return inner(library)

    outer = lambda library: Model().forward(library)
    ids = [outer(library) for library in each_lock(probe)]
    base = case_nested_calls.__code__.co_firstlineno
    for frames, place in zip(probe.frames(ids), places):
        check(frames, (__file__, place, "inner"), (__file__, base + 9, "forward"), (__file__, base + 11, "<lambda>"))
        assert "case_nested_calls" in [frame[2] for frame in frames]


def case_a_call_over_several_lines(probe):
    ids = []
    place = line() + 2
    ids.append(
        probe.locked.probe_capture(
        )
    )
    frames, = probe.frames(ids)
    assert frames[0][1] in range(place, place + 2) and frames[0][2] == "case_a_call_over_several_lines", frames


def case_generators_and_coroutines(probe):
    library = each_lock(probe)[-1]

    def generate():
        yield library.probe_capture()

    def delegate():
        yield from generate()

    async def produce():
        return library.probe_capture()

    async def consume():
        return await produce()

    ids = [next(delegate())]
    try:
        consume().send(None)
    except StopIteration as stop:
        ids.append(stop.value)
    ids += [library.probe_capture() for _ in range(1)]
    ids += list(library.probe_capture() for _ in range(1))
    names = [[frame[2] for frame in frames] for frames in probe.frames(ids)]
    assert names[0][:3] == ["generate", "delegate", "case_generators_and_coroutines"], names[0]
    assert names[1][:3] == ["produce", "consume", "case_generators_and_coroutines"], names[1]
    assert names[2][-3:-1] == ["case_generators_and_coroutines", "main"] or "main" in names[2], names[2]
    assert names[3][:2] == ["<genexpr>", "case_generators_and_coroutines"], names[3]


def case_unusual_names(probe):
    library = each_lock(probe)[-1]
    sources = [("/données/€ 😀.py", "été"), ('/a", line 3 in b.py', "f"), ("/x" * 400 + ".py", "g"),
               ("/back\\slash.py", "h" * 600), ("", "k")]
    ids = []
    for file, name in sources:
        scope = {"capture": library.probe_capture}
        exec(compile("def %s():\n  return capture()\n" % name, file, "exec"), scope)
        ids.append(scope[name]())
    frames = probe.frames(ids)
    assert frames[0][0] == ("/données/€ 😀.py", 2, "été"), frames[0]
    assert frames[1][0] == ('/a", line 3 in b.py', 2, "f"), frames[1]
    assert frames[2][0][0].startswith("/x/x/x") and frames[2][0][1:] == (2, "g"), frames[2]
    assert frames[3][0][0] == "/back\\slash.py" and frames[3][0][2].startswith("h" * 400), frames[3]
    assert frames[4][0] == ("", 2, "k"), frames[4]
    for frame in frames:
        assert frame[1][2] == "case_unusual_names", frame


def case_deep_recursion(probe):
    sys.setrecursionlimit(5000)

    def recurse(depth, library):
        return recurse(depth - 1, library) if depth else library.probe_capture()

    ids = [recurse(900, library) for library in each_lock(probe)]
    for frames in probe.frames(ids):
        assert len(frames) == 64 and {frame[2] for frame in frames} == {"recurse"}, frames
        assert len({frame[1] for frame in frames}) == 1, frames


def case_threads(probe):
    import threading
    libraries, count, rounds = each_lock(probe), 8, 200
    ids, start = [[] for _ in range(count)], threading.Barrier(count)
    scope = {}
    for i in range(count):
        exec(compile("\n" * i + "def work_%d(capture): return capture()" % i, "/thread.py", "exec"), scope)

    def run(i):
        start.wait()
        for n in range(rounds):
            ids[i].append(scope["work_%d" % i](libraries[n % len(libraries)].probe_capture))

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flat = [(i, id) for i in range(count) for id in sorted(set(ids[i]))]
    assert len(flat) <= count * len(libraries) * 2, flat
    for (i, _), frames in zip(flat, probe.frames([id for _, id in flat])):
        assert frames[0] == ("/thread.py", i + 1, "work_%d" % i), frames
        assert frames[1][2] == "run" and [f[2] for f in frames].count("run") >= 2, frames


def case_threads_that_python_did_not_start(probe):
    ids = [probe.unlocked.probe_on_thread(None)]

    def callback():
        ids.append(probe.locked.probe_capture())

    wrapped = ctypes.CFUNCTYPE(None)(callback)
    probe.unlocked.probe_on_thread(ctypes.cast(wrapped, ctypes.c_void_p))
    frames = probe.frames(ids)
    assert frames[0] == [], frames
    assert [frame[2] for frame in frames[1]] == ["callback"], frames


def case_exceptions_are_left_alone(probe):
    ids = []

    class Tensor:
        def __del__(self):
            ids.append(probe.locked.probe_capture())

    def fail():
        tensor = Tensor()
        raise KeyError("kept")

    try:
        fail()
    except KeyError as error:
        assert sys.exc_info()[1] is error
        ids.append(probe.locked.probe_capture())
        assert sys.exc_info()[1] is error and str(error) == "'kept'"
        error.__traceback__ = None
    assert sys.exc_info() == (None, None, None)

    def generate():
        try:
            yield
        finally:
            ids.append(probe.locked.probe_capture())

    try:
        for _ in generate():
            raise ValueError
    except ValueError:
        pass
    for frames in probe.frames(ids):
        assert frames, frames


def case_nothing_is_leaked(probe):
    import gc

    def work():
        return probe.locked.probe_capture()

    ids = [work() for _ in range(10)]
    gc.collect()
    code, objects = sys.getrefcount(work.__code__), len(gc.get_objects())
    name = sys.getrefcount(work.__code__.co_filename)
    for _ in range(1000):
        work()
    gc.collect()
    assert sys.getrefcount(work.__code__) == code
    assert sys.getrefcount(work.__code__.co_filename) == name
    assert len(gc.get_objects()) <= objects + 10
    descriptors = len(os.listdir("/proc/self/fd"))
    work()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    probe.frames(ids)


def case_collections_and_tracing(probe):
    import gc
    gc.set_threshold(1)
    ids = [0]

    def trace(frame, event, argument):
        ids[0] = probe.locked.probe_capture()
        return trace

    def work():
        cycle = []
        cycle.append(cycle)
        return len(cycle)

    sys.settrace(trace)
    for _ in range(50):
        work()
    sys.settrace(None)
    gc.set_threshold(700)
    frames, = probe.frames(ids)
    assert frames[0][2] == "trace" and frames[1][2] in ("work", "case_collections_and_tracing"), frames


def case_no_descriptor_left(probe):
    """A process that has run out of descriptors still gets stacks, and no error. Only the walk needs no descriptor."""
    import resource
    ids = []
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limit[1]))
    ids.append(probe.locked.probe_capture())
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    frames, = probe.frames(ids)
    assert bool(frames) == (probe.warm or sys.version_info[:2] not in ((3, 11), (3, 12))) or sys.version_info < (3, 9)


def case_interpreter_exit(probe):
    import atexit

    class Tensor:
        def __del__(self):
            capture()

    capture = probe.locked.probe_capture
    atexit.register(probe.locked.probe_capture)
    atexit.register(probe.unlocked.probe_capture)
    sys.modules["kept_until_the_end"] = Tensor()
    globals()["also_kept"] = Tensor()
    probe.locked.probe_capture()
    os.unlink(probe.path)


def case_fork(probe):
    ids = [probe.locked.probe_capture()]
    child = os.fork()
    if child == 0:
        probe.locked.probe_capture()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    probe.frames(ids)


def case_subinterpreters(probe):
    """Stacks inside and after a subinterpreter: frames of whichever interpreter, and no harm."""
    try:
        import _interpreters as interpreters
    except ImportError:
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            interpreters = None
    if interpreters:
        text = ("import ctypes\ndef inside():\n for library in (ctypes.CDLL(None), ctypes.PyDLL(None)):\n"
                "  library.probe_capture()\ninside()\n")
        for _ in range(3):
            for arguments, options in ((("legacy",), {}), ((), {"isolated": False}), ((), {})):
                try:
                    interpreter = interpreters.create(*arguments, **options)
                    break
                except TypeError:
                    pass
            interpreters.run_string(interpreter, text)
            interpreters.destroy(interpreter)
    ids = [library.probe_capture() for library in each_lock(probe)[:1]]
    frames, = probe.frames(ids)
    assert "case_subinterpreters" in [frame[2] for frame in frames] or sys.version_info < (3, 11), frames


# ---- Running them -----------------------------------------------------------------------------------------------

def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--case":
        globals()[sys.argv[2]](Probe(sys.argv[3] == "warm"))
        return 0
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    library, failures, ran = os.path.abspath(sys.argv[1]), 0, 0
    for python in [sys.executable] + sys.argv[2:]:
        cases = sorted(name for name in globals() if name.startswith("case_"))
        for case, state in [(case, state) for case in cases for state in ("cold", "warm")]:
            command = [python, "-X", "utf8", os.path.abspath(__file__), "--case", case, state]
            child = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                                   env=dict(os.environ, LD_PRELOAD=library, PYTHONDONTWRITEBYTECODE="1"))
            ran += 1
            if child.returncode != 0 or child.stdout:
                failures += 1
                output = child.stdout.decode(errors="replace")
                print("FAILED %s %s %s: exit code %d\n%s" % (python, case, state, child.returncode, output))
    print("%d cases, %d failed" % (ran, failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
