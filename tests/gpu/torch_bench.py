"""A correct decode-like graph, replayed many times: bf16 GEMM, attention over a long KV cache, RMS norm; 4 layers.

usage: torch_bench.py REPLAYS. Prints the first replay's time, the median of the later ones (host wall clock, launch to
synchronised), and whether the graph computed what eager execution does.
"""

import statistics
import sys
import time

import torch
from torch.nn.functional import rms_norm, scaled_dot_product_attention, silu

if len(sys.argv) != 2 or not sys.argv[1].isdigit() or int(sys.argv[1]) < 2:
    sys.exit(__doc__)
REPLAYS = int(sys.argv[1])
BATCH, HEADS, HEAD_WIDTH, LAYERS, KEYS, GROUPS = 32, 32, 128, 4, 8192, 2
WIDTH = HEADS * HEAD_WIDTH

torch.manual_seed(0)


def random(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


x = random(BATCH, WIDTH)
weights = [[random(WIDTH, WIDTH) * 0.01 for _ in range(4)] for _ in range(LAYERS)]
caches = [(random(BATCH, GROUPS, KEYS, HEAD_WIDTH), random(BATCH, GROUPS, KEYS, HEAD_WIDTH)) for _ in range(LAYERS)]


def step():
    hidden = x
    for (query, output, up, down), (key_cache, value_cache) in zip(weights, caches):
        normed = rms_norm(hidden, (WIDTH,))
        heads = (normed @ query).view(BATCH, GROUPS, HEADS // GROUPS, HEAD_WIDTH)
        attended = scaled_dot_product_attention(heads, key_cache, value_cache).reshape(BATCH, WIDTH)
        hidden = hidden + attended @ output
        normed = rms_norm(hidden, (WIDTH,))
        hidden = hidden + silu(normed @ up) @ down
    return hidden


warm_up = torch.cuda.Stream()
warm_up.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm_up):
    for _ in range(3):
        expected = step()
torch.cuda.current_stream().wait_stream(warm_up)
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = step()

times, wrong, checked = [], 0, sorted({0, 1, REPLAYS - 1})
for replay in range(REPLAYS):
    torch.cuda.synchronize()
    start = time.perf_counter()
    graph.replay()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - start) * 1e3)
    if replay in checked:
        wrong += not torch.allclose(captured, expected, rtol=1e-2, atol=1e-2)
print("first %.4f ms, median %.4f ms a replay over %d replays" % (times[0], statistics.median(times[1:]), REPLAYS - 1))
print("mean %.4f ms" % statistics.mean(times))
print("wrong %d of %d replays" % (wrong, len(checked)))
