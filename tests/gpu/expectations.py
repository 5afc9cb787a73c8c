"""What each program of this folder does on a GPU, and what gravel must say about it.

`native` and `recorded`: least and most wrong replays (None: all), natively and under `gravel run`. `races`: the pairs,
each with two sides (part of the kernel's name, LAUNCH marker of its launch in the source, access: R, W, RW, A, or None
for any) and the bytes both touch; `graphs`: findings, one a graph snapshot. `incomplete`: kind and a text that must be
said; absent: the graph must be called complete. `overhead`: each graph's armed replay is held against memcheck's.
`trace`: the graph has at least so many nodes, and the trace with one armed replay at most so many bytes.
"""

SOME, NONE = (1, None), (0, 0)


def pair(first, second, size, count=1):
    return {"sides": (first, second), "bytes": size, "count": count}


RACE_BYTES = 65536 * 4
RACE = {
    "buggy": {
        "native": (100, None),
        "recorded": SOME,
        "races": {
            "words": "1 finding, 3 pairs of 262144 bytes",
            "pairs": [
                pair(("fill_left", "fill_left", "W"), ("fill_right", "fill_right", "W"), RACE_BYTES),
                pair(("fill_left", "fill_left", "W"), ("sum_right", "sum_right", "R"), RACE_BYTES),
                pair(("sum_left", "sum_left", "R"), ("fill_right", "fill_right", "W"), RACE_BYTES),
            ],
        },
    },
    "clean": {"native": NONE, "recorded": NONE},
}

TRITON_BYTES = (1 << 20) * 4
CHILD_BYTES = 48 * 4 * 64
DEEP_BYTES = 4096 * 4
PDL_BYTES = (1 << 14) * 4
CONDITIONAL_BYTES = (1 << 14) * 4
TMA_BYTES = 1024 * 2048 * 2
RIGHT = {"native": NONE, "recorded": NONE}
MODEL = dict(RIGHT, overhead=True)

PROGRAMS = [
    dict(RACE, name="race (static cudart)", file="race_static", source="race.cu"),
    dict(RACE, name="race (shared cudart)", file="race_shared", source="race.cu"),
    {
        "name": "child",
        "file": "child",
        "source": "child.cu",
        # Every replay, so that the recorder's picture of the graph is tried after each change of it.
        "arm": "all",
        "buggy": {
            "native": SOME,
            "recorded": (0, None),
            "races": {
                # A race that several versions of one structure show is one finding.
                "words": "3 findings with 2 pairs of 12288 bytes each",
                "graphs": 3,
                "pairs": [pair(("add_to_rows", "add", "RW"), ("store_rows", "store", "R"), CHILD_BYTES, count=2)],
            },
            "incomplete": ("node", "host function"),
        },
        "clean": {"native": NONE, "recorded": NONE, "incomplete": ("node", "host function")},
    },
    {
        "name": "deep_graph",
        "file": "deep_graph",
        "source": "deep_graph.cu",
        "buggy": {
            "native": SOME,
            "recorded": SOME,
            "races": {
                "words": "1 finding, 70 pairs of 16384 bytes",
                "pairs": [pair(("side_step", "side", None), ("take_block", "take", "W"), DEEP_BYTES, count=70)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "pdl",
        "file": "pdl",
        "source": "pdl.cu",
        "buggy": {
            "native": SOME,
            "recorded": (0, None),
            "races": {
                "words": "1 finding, 1 pair of 65536 bytes",
                "pairs": [pair(("produce", "early", "W"), ("does_not_wait", "early", "R"), PDL_BYTES)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "conditional",
        "file": "conditional",
        "source": "conditional.cu",
        # Every replay: which body of the last IF runs changes from one to the next.
        "arm": "all",
        "buggy": {
            "native": SOME,
            "recorded": (0, None),
            "races": {
                "words": "1 finding, 1 pair of 65536 bytes",
                "pairs": [pair(("produce", "produce", "W"), ("consume", "consume", "R"), CONDITIONAL_BYTES)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "alloc_nodes",
        "file": "alloc_nodes",
        "source": "alloc_nodes.cu",
        "buggy": {"native": SOME, "recorded": SOME, "incomplete": ("graph", "allocates")},
        "clean": {"native": NONE, "recorded": NONE, "incomplete": ("graph", "allocates")},
    },
    {
        "name": "spin_flag",
        "file": "spin_flag",
        "source": "spin_flag.cu",
        "arguments": {"buggy": ["buggy", "20"]},
        "buggy": {"native": NONE, "recorded": (0, 1), "incomplete": ("graph", "wait_for_flag")},
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "torch_race",
        "file": "torch_race.py",
        "buggy": {
            "native": (50, 50),
            "recorded": SOME,
            "races": {
                "words": "1 finding, 1 pair of 2048 bytes",
                "pairs": [pair(("copy_kernel_cuda", "read", "R"), ("MulFunctor", "write", "W"), 8 * 128 * 2)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "triton_race",
        "file": "triton_race.py",
        "buggy": {
            "native": SOME,
            "recorded": SOME,
            "races": {
                "words": "1 finding, 3 pairs of 4194304 bytes",
                "pairs": [
                    pair(("produce", "left_write", "W"), ("produce", "right_write", "W"), TRITON_BYTES),
                    pair(("produce", "left_write", "W"), ("consume", "right_read", "R"), TRITON_BYTES),
                    pair(("consume", "left_read", "R"), ("produce", "right_write", "W"), TRITON_BYTES),
                ],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "tma_race output",
        "file": "tma_race.py",
        "arguments": {"buggy": ["buggy", "output"], "clean": ["clean", "output"]},
        "buggy": {
            "native": SOME,
            "recorded": (0, None),
            "races": {
                "words": "1 finding, 1 pair of 4194304 bytes",
                "pairs": [pair(("nvjet", "multiply", "W"), ("MulFunctor", "read_output", "R"), TMA_BYTES)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    {
        "name": "tma_race input",
        "file": "tma_race.py",
        "arguments": {"buggy": ["buggy", "input"], "clean": ["clean", "input"]},
        "buggy": {
            "native": SOME,
            "recorded": (0, None),
            "races": {
                "words": "1 finding, 1 pair of 4194304 bytes",
                "pairs": [pair(("nvjet", "multiply", "R"), ("MulFunctor", "update_input", None), TMA_BYTES)],
            },
        },
        "clean": {"native": NONE, "recorded": NONE},
    },
    # Correct programs with graphs of their own making: nothing to report, and nothing left unseen.
    {"name": "torch_decode llama", "file": "torch_decode.py", "arguments": {"clean": ["llama"]}, "clean": MODEL},
    {"name": "torch_decode moe", "file": "torch_decode.py", "arguments": {"clean": ["moe"]}, "clean": MODEL},
    {"name": "torch_decode hybrid", "file": "torch_decode.py", "arguments": {"clean": ["hybrid"]}, "clean": MODEL},
    {"name": "torch_decode deep", "file": "torch_decode.py", "arguments": {"clean": ["deep"]},
     "clean": dict(RIGHT, trace=(1000, 1 << 20))},
    {"name": "torch_fp8", "file": "torch_fp8.py", "arguments": {"clean": []}, "clean": RIGHT},
    {"name": "torch_compiled train", "file": "torch_compiled.py", "arguments": {"clean": ["train"]}, "clean": RIGHT},
    {"name": "torch_compiled decode", "file": "torch_compiled.py", "arguments": {"clean": ["decode"]}, "clean": RIGHT},
    {"name": "ggml_decode", "file": "ggml_decode", "source": "ggml/decode.c", "optional": "tests/gpu/ggml/build.sh",
     "library": "libcublas.so.13", "arguments": {"clean": []}, "clean": RIGHT},
    {"name": "ggml_decode, concurrent streams", "file": "ggml_decode", "source": "ggml/decode.c",
     "optional": "tests/gpu/ggml/build.sh", "library": "libcublas.so.13", "environment": {"GGML_CUDA_GRAPH_OPT": "1"}, "arguments": {"clean": []},
     "clean": RIGHT},
    {"name": "jax_buffers", "file": "jax_buffers.py", "arguments": {"clean": []}, "arm": "all", "clean": RIGHT},
]

# A replay's time over the native one, at most: traced and never armed; after an armed replay.
BENCH_BARS = {"traced": 1.01, "armed": 1.05}

# How fast the canary's hash has to go over memory, in percent of the bytes that a copy moves in the same time.
CANARY_HASH_BAR = 70

# The differential: how many replays, all of them checked, and whether the first one must differ and the node that does
# (part of a kernel's name) or none may. `cost`: graph and serial replays of a launch, in native replays.
DIFFERENTIAL = [
    {"name": "torch_race, buggy", "arguments": ["torch_race.py", "buggy", "5"], "differs": True, "launches": 5},
    {"name": "torch_race, clean", "arguments": ["torch_race.py", "clean", "1000"], "differs": False, "launches": 1000},
    {"name": "torch_bench", "arguments": ["torch_bench.py", "100"], "differs": False, "launches": 100, "cost": 3.0},
]
# Mean time of a replay with every 200th checked, in means without gravel.
DIFFERENTIAL_EVERY = {"every": 200, "replays": 4000, "bar": 1.03}

# Launches repeated with other padding or poison, and probes: the ids that must be observed, and at least how many
# launches are repeated.
PADDED = [
    {"name": "torch_padded, buggy", "arguments": ["torch_padded.py", "buggy"], "options": ["--pad=every=1"],
     "ids": ["pad-read", "pad-write"], "repeated": 7},
    {"name": "torch_padded, clean", "arguments": ["torch_padded.py", "clean"], "options": ["--pad=every=1"], "ids": [],
     "repeated": 7},
    {"name": "torch_padded, probe", "arguments": ["torch_padded.py", "clean"], "options": ["--probe", "--poison"],
     "ids": [], "repeated": 1},
]

# The specimen's own checks: what they show, what must come out, the script with its arguments, and seconds at most.
SPECIMEN = [
    ("fingerprint", "wrong with bf16 keys, overlap and a batch, and in no other of 16 cells", ["fingerprint.py"], 200),
    ("races and decoys", "each configuration's pairs, and no others", ["check.py"], 200),
    ("differential", "the incident differs at a race; 10,000 repaired steps do not", ["differential.py", "10000"], 300),
    ("canary", "writers named; 10,000 steps with transfers silent", ["canary.py", "--steps", "10000"], 300),
    ("fix", "0 wrong with the fix, wrong again without, no slower than overlap off", ["fix_live.py"], 300),
]
