"""A tensor that is read on a side stream and dropped before the streams join, without record_stream.

The main stream's allocator hands the block of `query` to the next tensor of that size, `hidden`, while the side
stream has yet to read it. The clean program tells the allocator with record_stream. usage: torch_race.py buggy|clean [REPLAYS]
"""

import sys

import torch

if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("buggy", "clean"):
    sys.exit(__doc__)
BUGGY = sys.argv[1] == "buggy"
REPLAYS, BATCH, WIDTH, KEYS = int(sys.argv[2]) if len(sys.argv) > 2 else 50, 8, 128, 16384

torch.manual_seed(0)
keys = torch.randn(KEYS, WIDTH, device="cuda", dtype=torch.bfloat16)
x = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
side = torch.cuda.Stream()


def index_scores(query, best_key):
    return (query.float() + best_key).sum(1)  # LAUNCH:read


def step(x, overlap):
    main = torch.cuda.current_stream()
    stream = side if overlap else main
    query = x * 0.5
    stream.wait_stream(main)
    with torch.cuda.stream(stream):
        # What an indexer does before it needs the query. The sleep (a millisecond or so) makes it long.
        torch.cuda._sleep(2000000)
        norms = torch.relu(keys.float()).sum(1)
        best_key = torch.softmax(norms, 0).max()
        scores = index_scores(query, best_key)
    if overlap and not BUGGY:
        query.record_stream(side)
    del query
    hidden = x * 3.0  # LAUNCH:write
    hidden = torch.nn.functional.layer_norm(hidden, (WIDTH,))
    main.wait_stream(stream)
    return scores, hidden


warm_up = torch.cuda.Stream()
warm_up.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm_up):
    step(x, False)
    step(x, True)
torch.cuda.current_stream().wait_stream(warm_up)
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = step(x, True)

wrong = 0
for replay in range(REPLAYS):
    x.copy_(torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16))
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    expected = step(x, False)
    torch.cuda.synchronize()
    if not all(torch.allclose(a, b, rtol=1e-2, atol=1e-2) for a, b in zip(captured, expected)):
        wrong += 1
print("wrong %d of %d replays" % (wrong, REPLAYS))
