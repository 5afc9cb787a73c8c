"""The decode step of a language model from the transformers package, random weights, static cache, bf16: one graph for
each batch size, captured largest first into one memory pool, as inference engines do.

usage: torch_decode.py MODEL [REPLAYS]. MODEL is llama, deep (a Llama whose graph has over 1,000 nodes, one batch size),
moe (Qwen3-MoE) or hybrid (Qwen3-Next: linear attention and full attention layers, mixture of experts). Compares each replay's logits with the eager step from the same state.
"""

import statistics
import sys
import time

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, Qwen3NextConfig,
                          Qwen3NextForCausalLM, StaticCache)

BUCKETS, PROMPT, LENGTH = (8, 4, 1), 24, 128
SHAPE = {"vocab_size": 4096, "max_position_embeddings": 512, "hidden_size": 1024, "num_attention_heads": 16,
         "num_key_value_heads": 4, "pad_token_id": 0}
EXPERTS = {"moe_intermediate_size": 512, "num_experts": 16, "num_experts_per_tok": 4, "head_dim": 64}


def llama(layers=4):
    return LlamaForCausalLM._from_config(LlamaConfig(**SHAPE, intermediate_size=2816, num_hidden_layers=layers))


def deep():
    return llama(20)


def moe():
    config = Qwen3MoeConfig(**SHAPE, **EXPERTS, intermediate_size=2048, num_hidden_layers=4)
    return Qwen3MoeForCausalLM._from_config(config, experts_implementation="batched_mm")


def hybrid():
    config = Qwen3NextConfig(**SHAPE, **EXPERTS, intermediate_size=2048, num_hidden_layers=4,
                             shared_expert_intermediate_size=512, linear_num_key_heads=8, linear_num_value_heads=16,
                             linear_key_head_dim=64, linear_value_head_dim=64)
    return Qwen3NextForCausalLM._from_config(config, experts_implementation="batched_mm")


MODELS = {"llama": llama, "deep": deep, "moe": moe, "hybrid": hybrid}
if len(sys.argv) < 2 or sys.argv[1] not in MODELS:
    sys.exit(__doc__)
if sys.argv[1] == "deep":
    BUCKETS = BUCKETS[-1:]
REPLAYS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
torch.manual_seed(0)
with torch.device("cuda"):
    model = MODELS[sys.argv[1]]().to(torch.bfloat16).eval()


class Bucket:
    """One batch size: its cache after a prompt, its static inputs, its graph."""

    def __init__(self, batch):
        self.cache = StaticCache(config=model.config, max_cache_len=LENGTH)
        prompt = torch.randint(1, SHAPE["vocab_size"], (batch, PROMPT), device="cuda")
        model(input_ids=prompt, past_key_values=self.cache, use_cache=True)
        self.token = torch.randint(1, SHAPE["vocab_size"], (batch, 1), device="cuda")
        self.position = torch.full((batch, 1), PROMPT, device="cuda")
        self.start = [tensor.clone() for tensor in self.state()]

    def state(self):
        """The tensors of the cache, which a step changes; linear attention layers keep theirs in dictionaries."""
        values = [value for layer in self.cache.layers for _, value in sorted(vars(layer).items())]
        values += [item for value in values if isinstance(value, dict) for item in value.values()]
        return [value for value in values if isinstance(value, torch.Tensor)]

    def rewind(self):
        for tensor, value in zip(self.state(), self.start):
            tensor.copy_(value)

    def step(self):
        return model(input_ids=self.token, position_ids=self.position, past_key_values=self.cache,
                     use_cache=True).logits

    def capture(self, pool):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.rewind()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.logits = self.step()

    def wrong(self):
        """How many replays gave other logits than the eager step, and the milliseconds of each replay."""
        wrong, times = 0, []
        for _ in range(REPLAYS):
            self.rewind()
            expected = self.step()
            self.rewind()
            torch.cuda.synchronize()
            start = time.perf_counter()
            self.graph.replay()
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start) * 1e3)
            wrong += not torch.allclose(self.logits, expected, rtol=2e-2, atol=2e-2)
        return wrong, times


with torch.no_grad():
    pool = torch.cuda.graph_pool_handle()
    buckets = [Bucket(batch) for batch in BUCKETS]
    for bucket in buckets:
        bucket.capture(pool)
    total = 0
    for batch, bucket in zip(BUCKETS, buckets):
        wrong, times = bucket.wrong()
        total += wrong
        print("batch %d: first %.3f ms, median %.3f ms a replay" % (batch, times[0], statistics.median(times[1:])))
print("wrong %d of %d replays" % (total, REPLAYS * len(BUCKETS)))
