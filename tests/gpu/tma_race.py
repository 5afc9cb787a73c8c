"""A matrix product that moves its data by TMA tensor copies, in a branch that nothing orders against another one.

usage: tma_race.py buggy|clean output|input. `output`: the other branch reads what the product writes; `input`: it
updates in place what the product reads. The clean program makes the later of the two wait.
"""

import sys

import torch

if len(sys.argv) != 3 or sys.argv[1] not in ("buggy", "clean") or sys.argv[2] not in ("output", "input"):
    sys.exit(__doc__)
BUGGY, OUTPUT = sys.argv[1] == "buggy", sys.argv[2] == "output"
REPLAYS, ROWS, WIDTH = 50, 1024, 2048

torch.manual_seed(0)
a, start = (torch.randn(ROWS, WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2))
b = torch.randn(WIDTH, WIDTH, device="cuda", dtype=torch.bfloat16) * 0.01
product, result = torch.zeros_like(a), torch.zeros_like(a)
side = torch.cuda.Stream()


def multiply():
    torch.cuda._sleep(200000)
    torch.mm(a, b, out=product)  # LAUNCH:multiply


def step(overlap):
    main = torch.cuda.current_stream()
    stream = side if overlap else main
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        multiply()
    if not BUGGY:
        main.wait_stream(stream)
    if OUTPUT:
        torch.mul(product, 2, out=result)  # LAUNCH:read_output
    else:
        a.mul_(2)  # LAUNCH:update_input
    main.wait_stream(stream)


warm_up = torch.cuda.Stream()
warm_up.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm_up):
    step(False)
torch.cuda.current_stream().wait_stream(warm_up)
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    step(True)

wrong = 0
for replay in range(REPLAYS):
    outcomes = []
    start.copy_(torch.randn_like(start))
    for run in (graph.replay, lambda: step(False)):
        a.copy_(start)
        torch.cuda.synchronize()
        run()
        torch.cuda.synchronize()
        outcomes.append((product.clone(), result.clone()))
    wrong += not all(torch.equal(x, y) for x, y in zip(*outcomes))
print("wrong %d of %d replays" % (wrong, REPLAYS))
