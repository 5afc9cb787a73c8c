"""A padded decode step that tells gravel everything: rows, a watched cache, and a probe (python/gravel.py).

A graph for eight rows projects its inputs, scales them by the largest magnitude, and stores them into slots of a cache. Five
rows are real; the others hold what the step before left there. Buggy: the magnitude is that of all rows, so that real rows
depend on padding (pad-read), and the slots of padded rows are left as they were, so that they store into slots of others
(pad-write). In most steps they store what is there already: the largest magnitude is one of the first step's, which they
hold. No byte changes then, and a canary tells nothing. Clean: one magnitude a row, and padded rows have slot 0, which is
nobody's; the three of them race for it, so that it comes out otherwise from launch to launch. usage:
torch_padded.py buggy|clean [STEPS]. Prints `wrong K of N`, and what the probe says where it is on. Run it as

    gravel run --pad=every=2 -o t.gravel -- python tests/gpu/torch_padded.py buggy
    gravel run --probe --canary -o t.gravel -- python tests/gpu/torch_padded.py clean
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import torch  # noqa: E402

import gravel  # noqa: E402

if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("buggy", "clean"):
    sys.exit(__doc__)
BUGGY = sys.argv[1] == "buggy"
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 8
ROWS, WIDTH, SLOTS = 8, 256, 64

torch.manual_seed(0)
weight = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) / 16
x = torch.zeros(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16)
slots = torch.zeros(ROWS, device="cuda", dtype=torch.int64)
out = torch.zeros(ROWS, WIDTH, device="cuda", dtype=torch.float32)
cache = torch.zeros(SLOTS, WIDTH, device="cuda", dtype=torch.float32)


def project(values):
    return (values @ weight).float()


def step():
    gravel.probe("x", 0, ROWS, x, stream=torch.cuda.current_stream())
    y = project(x)
    gravel.probe("projected", 0, ROWS, y, stream=torch.cuda.current_stream())
    largest = y.abs().amax() if BUGGY else y.abs().amax(1, keepdim=True)
    out.copy_(y / largest.clamp(min=1e-6))
    cache.index_copy_(0, slots, out)


# Static inputs and outputs; slot 0 is kept for padded rows. (The names are shown in reports.)
gravel.rows("x", x, gravel.ROWS_IN)
gravel.rows("slots", slots, gravel.ROWS_IN | gravel.ROWS_INDEX | gravel.ZERO_IS_PAD)
gravel.rows("out", out, gravel.ROWS_OUT)
gravel.scratch("slot 0", cache[:1])

warm_up = torch.cuda.Stream()
warm_up.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm_up):
    for _ in range(2):
        step()
torch.cuda.current_stream().wait_stream(warm_up)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()
cache.zero_()
region = gravel.Region("cache", cache, page_bytes=WIDTH * 4)

wrong = compared = differing = 0
for number in range(STEPS):
    real = ROWS if number == 0 else 5
    # Each step's requests have slots of their own, so that stale ones belong to somebody else.
    own = torch.arange(real) + 1 + 8 * (number % 7)
    inputs = torch.randn(real, WIDTH, device="cuda", dtype=torch.bfloat16)
    inputs *= 8 if number == 0 else 1
    x[:real].copy_(inputs)
    slots[:real].copy_(own)
    if not BUGGY:
        slots[real:].zero_()
    before = cache.clone()
    torch.cuda.synchronize()
    gravel.batch_rows(real, ROWS)
    graph.replay()
    region.allow_slots(own.tolist() + [0])
    gravel.step(torch.cuda.current_stream())
    torch.cuda.synchronize()

    y = project(inputs)
    right = y / y.abs().amax(1, keepdim=True).clamp(min=1e-6)
    others = torch.ones(SLOTS, dtype=torch.bool, device="cuda")
    others[own.cuda()] = others[0] = False
    kept = torch.equal(cache[others], before[others])
    wrong += not (kept and torch.allclose(out[:real], right, rtol=1e-2, atol=1e-2))

    # Graph against eager, on what the graph itself had for input.
    clone = gravel.probe_find("x", 0, ROWS)
    if clone:
        values = torch.as_tensor(clone, device="cuda").view(torch.bfloat16)
        found = gravel.probe_compare("projected", 0, ROWS, real, project(values), tolerance=1e-2,
                                     stream=torch.cuda.current_stream())
        compared += found is not None
        differing += bool(found)
print(f"wrong {wrong} of {STEPS}")
if compared:
    print(f"probe: {differing} of {compared} differ")
