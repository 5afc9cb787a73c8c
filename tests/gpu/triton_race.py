"""Two branches of a captured graph write one tensor with Triton kernels. In the clean program each has its own.

usage: triton_race.py buggy|clean
"""

import sys

import torch
import triton
import triton.language as tl

if len(sys.argv) != 2 or sys.argv[1] not in ("buggy", "clean"):
    sys.exit(__doc__)
BUGGY = sys.argv[1] == "buggy"
REPLAYS, COUNT, BLOCK = 50, 1 << 20, 1024


@triton.jit
def produce(source, target, steps, BLOCK: tl.constexpr):
    """target = source after `steps` halvings towards 1."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(source + offsets)
    for _ in range(steps):
        value = value * 0.5 + 0.5
    tl.store(target + offsets, value)


@triton.jit
def consume(source, target, BLOCK: tl.constexpr):
    """target = -source"""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + offsets, -tl.load(source + offsets))


GRID = (COUNT // BLOCK,)
x = torch.full((COUNT,), 5.0, device="cuda")
y = torch.full((COUNT,), 3.0, device="cuda")
shared = torch.zeros_like(x)
right_own = shared if BUGGY else torch.zeros_like(x)
left_result, right_result = torch.zeros_like(x), torch.zeros_like(x)
side = torch.cuda.Stream()


def step():
    main = torch.cuda.current_stream()
    side.wait_stream(main)
    with torch.cuda.stream(side):
        produce[GRID](x, shared, 20000, BLOCK)  # LAUNCH:left_write
        consume[GRID](shared, left_result, BLOCK)  # LAUNCH:left_read
    produce[GRID](y, right_own, 1, BLOCK)  # LAUNCH:right_write
    torch.cuda._sleep(3000000)
    consume[GRID](right_own, right_result, BLOCK)  # LAUNCH:right_read
    main.wait_stream(side)


# Compiles the kernels, outside the capture.
warm_up = torch.cuda.Stream()
with torch.cuda.stream(warm_up):
    step()
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step()

wrong = 0
for replay in range(REPLAYS):
    left_result.zero_()
    right_result.zero_()
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    # The left branch ends at 1, the right one at (3 + 1) / 2.
    if not (torch.all(left_result == -1.0) and torch.all(right_result == -2.0)):
        wrong += 1
print("wrong %d of %d replays" % (wrong, REPLAYS))
