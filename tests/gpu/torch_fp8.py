"""Layers of fp8 matrix products (e4m3, one scale a tensor) with the quantisation before each, in one graph.

usage: torch_fp8.py [REPLAYS]
"""

import sys

import torch

REPLAYS = int(sys.argv[1]) if len(sys.argv) > 1 else 3
BATCH, WIDTH, LAYERS, FP8 = 64, 2048, 4, torch.float8_e4m3fn

torch.manual_seed(0)
x = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
weights = [(torch.randn(WIDTH, WIDTH, device="cuda") * 0.02).to(FP8) for _ in range(LAYERS)]
one = torch.ones((), device="cuda")


def step():
    hidden = x
    for weight in weights:
        scale = hidden.abs().max().float() / 448
        quantised = (hidden / scale).to(FP8)
        hidden = torch._scaled_mm(quantised, weight.t(), scale_a=scale, scale_b=one, out_dtype=torch.bfloat16)
        hidden = torch.nn.functional.silu(hidden)
    return hidden


warm_up = torch.cuda.Stream()
warm_up.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(warm_up):
    for _ in range(2):
        expected = step()
torch.cuda.current_stream().wait_stream(warm_up)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = step()
wrong = 0
for replay in range(REPLAYS):
    graph.replay()
    torch.cuda.synchronize()
    wrong += not torch.allclose(captured, expected, rtol=2e-2, atol=2e-2)
print("wrong %d of %d replays" % (wrong, REPLAYS))
