// The model's weights. They are not trained but made, so that the right answer to every prompt is known:
//
// A word of one of the first classes (vocabulary.h) has a *code*, eight values of +1 and -1, orthogonal or opposite to
// every other code of its class. The residual stream has a block for each thing that can be known at a token: its own
// name, place, colour, ..., the name it belongs to, what was looked up. The layers move codes between the blocks:
//
//     layer 0   binds: a place takes the code of the name before it, a colour the code of the place before it, and the
//               tool call that is being written takes name and verb from the question
//     layer 1   looks up: from the bound name to the place that it guards
//     layer 2   looks up: from that place to its colour, animal or pin, whichever the tool call needs next
//
// Both look-ups go through the index. The last projection adds what comes next by grammar to what was found. Every
// margin is several times what rounding can do.
#ifndef SPECIMEN_WEIGHTS_H
#define SPECIMEN_WEIGHTS_H

#include "specimen/device.h"

// Device addresses. Matrices are bf16 with a line for each output; biases, sinks and turns are fp32.
typedef struct layer_weights {
    CUdeviceptr qkv_a;         // [QKV_A][HIDDEN]
    CUdeviceptr q;             // [QUERY][Q_RANK]
    CUdeviceptr sinks;         // [HEADS]
    CUdeviceptr out_a;         // [HEADS * OUT_RANK][HEAD_DIM]
    CUdeviceptr out_b;         // [HIDDEN][OUT]
    CUdeviceptr core;          // [CORE_KV][HIDDEN]: values, then scores; from here on layers 1 and 2 only
    CUdeviceptr core_bias;     // [COMPRESSED][HEAD_DIM]
    CUdeviceptr index;         // [INDEX_KV][HIDDEN]
    CUdeviceptr index_bias;    // [COMPRESSED][INDEX_DIM]
    CUdeviceptr index_q;       // [INDEX_QUERY][Q_RANK]
    CUdeviceptr index_weights; // [TILE_OUTPUTS][HIDDEN], of which INDEX_HEADS are used
} layer_weights;

typedef struct model_weights {
    CUdeviceptr memory;    // all of it
    CUdeviceptr embedding; // [tokens][HIDDEN]
    CUdeviceptr logits;    // [columns][HIDDEN]
    CUdeviceptr turns;     // [MAX_CONTEXT][ROPE_DIM]: cosine and sine of each pair at each position
    int columns;           // size of the vocabulary, rounded up to whole tiles
    layer_weights layers[3];
} model_weights;

// Makes the weights and copies them to the device. The device keeps the first error.
void weights_create(model_weights *w, device *d);
void weights_destroy(model_weights *w);

#endif
