"""Programs whose graphs torch.compile makes (Inductor, Triton kernels, CUDA graph trees).

usage: torch_compiled.py train|decode. `train`: a small training step; `decode`: the decode step of a Llama with random
weights and a static cache. Compares with the same program run eagerly.
"""

import sys

import torch

if len(sys.argv) != 2 or sys.argv[1] not in ("train", "decode"):
    sys.exit(__doc__)
REPLAYS = 6
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")


def train():
    def model():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.LayerNorm(1024),
                                   torch.nn.Linear(1024, 512)).cuda()

    def losses(forward, layers):
        optimizer = torch.optim.SGD(layers.parameters(), lr=1e-3)
        for _ in range(REPLAYS):
            torch.compiler.cudagraph_mark_step_begin()
            loss = (forward(x) ** 2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            yield float(loss.detach())

    x = torch.randn(64, 512, device="cuda")
    plain, compiled = model(), model()
    pairs = list(zip(losses(plain, plain), losses(torch.compile(compiled, mode="reduce-overhead"), compiled)))
    return sum(abs(a - b) > 1e-2 * abs(a) for a, b in pairs)


def decode():
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
    config = LlamaConfig(vocab_size=4096, hidden_size=512, intermediate_size=1408, num_hidden_layers=2,
                         num_attention_heads=8, num_key_value_heads=2, max_position_embeddings=256)
    model = LlamaForCausalLM._from_config(config).to("cuda", torch.bfloat16).eval()

    def logits(forward):
        cache = StaticCache(config=config, max_cache_len=64)
        tokens = torch.arange(1, 9, device="cuda").repeat(2, 1)
        with torch.no_grad():
            model(input_ids=tokens, past_key_values=cache, use_cache=True)
            for step in range(REPLAYS):
                torch.compiler.cudagraph_mark_step_begin()
                position = torch.full((2, 1), 8 + step, device="cuda")
                yield forward(input_ids=tokens[:, :1], position_ids=position, past_key_values=cache,
                              use_cache=True).logits.clone()

    expected = list(logits(model))
    return sum(not torch.allclose(a, b, rtol=5e-2, atol=5e-2)
               for a, b in zip(expected, logits(torch.compile(model, mode="reduce-overhead"))))


wrong = train() if sys.argv[1] == "train" else decode()
torch.cuda.synchronize()
print("wrong %d of %d replays" % (wrong, REPLAYS))
