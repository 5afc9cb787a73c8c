/* The decode step of a Llama with random f16 weights, built with ggml's C API for its CUDA back end, which captures it
 * into a graph after two steps and replays it. Repeats one step from one state and compares the logits with those of
 * the first, which ran without a graph.
 *
 * usage: ggml_decode. With GGML_CUDA_GRAPH_OPT=1 in the environment the back end runs the branches for query, key and
 * value in concurrent streams. build.sh beside this file fetches nothing; it builds against a ggml source tree.
 */
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-cuda.h"
#include "ggml.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 1024,
    HEADS = 16,
    KV_HEADS = 4,
    HEAD = WIDTH / HEADS,
    HIDDEN = 2816,
    VOCABULARY = 4096,
    LAYERS = 4,
    CONTEXT = 256,
    POSITION = 40,
    STEPS = 8
};

struct layer {
    struct ggml_tensor *attention_norm, *query, *key, *value, *output, *ffn_norm, *gate, *up, *down;
    struct ggml_tensor *key_cache, *value_cache;
};

static struct {
    struct ggml_tensor *embedding, *norm, *head;
    struct layer layers[LAYERS];
} model;

static uint64_t state = 88172645463325252ull;

static float uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (float)(state >> 40) / (float)(1 << 24) - 0.5f;
}

static void fill(struct ggml_tensor *tensor, float scale, float offset)
{
    size_t count = (size_t)ggml_nelements(tensor);
    if (tensor->type == GGML_TYPE_F16) {
        ggml_fp16_t *values = malloc(count * sizeof *values);
        for (size_t i = 0; i < count; i++)
            values[i] = ggml_fp32_to_fp16(offset + scale * uniform());
        ggml_backend_tensor_set(tensor, values, 0, count * sizeof *values);
        free(values);
    } else {
        float *values = malloc(count * sizeof *values);
        for (size_t i = 0; i < count; i++)
            values[i] = offset + scale * uniform();
        ggml_backend_tensor_set(tensor, values, 0, count * sizeof *values);
        free(values);
    }
}

static void make_weights(struct ggml_context *context)
{
    model.embedding = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, VOCABULARY);
    model.norm = ggml_new_tensor_1d(context, GGML_TYPE_F32, WIDTH);
    model.head = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, VOCABULARY);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = &model.layers[i];
        layer->attention_norm = ggml_new_tensor_1d(context, GGML_TYPE_F32, WIDTH);
        layer->query = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, WIDTH);
        layer->key = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, HEAD * KV_HEADS);
        layer->value = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, HEAD * KV_HEADS);
        layer->output = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, WIDTH);
        layer->ffn_norm = ggml_new_tensor_1d(context, GGML_TYPE_F32, WIDTH);
        layer->gate = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, HIDDEN);
        layer->up = ggml_new_tensor_2d(context, GGML_TYPE_F16, WIDTH, HIDDEN);
        layer->down = ggml_new_tensor_2d(context, GGML_TYPE_F16, HIDDEN, WIDTH);
        layer->key_cache = ggml_new_tensor_2d(context, GGML_TYPE_F16, HEAD * KV_HEADS, CONTEXT);
        layer->value_cache = ggml_new_tensor_2d(context, GGML_TYPE_F16, HEAD * KV_HEADS, CONTEXT);
    }
}

static void fill_weights(struct ggml_context *context)
{
    for (struct ggml_tensor *t = ggml_get_first_tensor(context); t; t = ggml_get_next_tensor(context, t))
        fill(t, ggml_n_dims(t) == 1 ? 0.0f : 0.1f, ggml_n_dims(t) == 1 ? 1.0f : 0.0f);
}

static struct ggml_tensor *normed(struct ggml_context *context, struct ggml_tensor *x, struct ggml_tensor *weight,
                                  const char *name, int layer)
{
    struct ggml_tensor *result = ggml_mul(context, ggml_rms_norm(context, x, 1e-5f), weight);
    ggml_format_name(result, "%s-%d", name, layer);
    return result;
}

static struct ggml_tensor *rotated(struct ggml_context *context, struct ggml_tensor *x, struct ggml_tensor *position)
{
    return ggml_rope_ext(context, x, position, NULL, HEAD, 0, CONTEXT, 10000.0f, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f);
}

static struct ggml_tensor *attention(struct ggml_context *context, struct ggml_cgraph *graph, struct layer *layer,
                                     struct ggml_tensor *x, struct ggml_tensor *position, struct ggml_tensor *slot,
                                     struct ggml_tensor *mask, int index)
{
    struct ggml_tensor *query = ggml_mul_mat(context, layer->query, x);
    struct ggml_tensor *key = ggml_mul_mat(context, layer->key, x);
    struct ggml_tensor *value = ggml_mul_mat(context, layer->value, x);
    ggml_format_name(query, "Qcur-%d", index);
    ggml_format_name(key, "Kcur-%d", index);
    ggml_format_name(value, "Vcur-%d", index);
    query = rotated(context, ggml_reshape_3d(context, query, HEAD, HEADS, 1), position);
    key = rotated(context, ggml_reshape_3d(context, key, HEAD, KV_HEADS, 1), position);
    ggml_build_forward_expand(graph, query);
    struct ggml_tensor *keys =
        ggml_set_rows(context, layer->key_cache, ggml_reshape_2d(context, key, HEAD * KV_HEADS, 1), slot);
    struct ggml_tensor *values = ggml_set_rows(context, layer->value_cache, value, slot);
    ggml_build_forward_expand(graph, keys);
    ggml_build_forward_expand(graph, values);

    size_t row = ggml_row_size(GGML_TYPE_F16, HEAD * KV_HEADS), head = ggml_row_size(GGML_TYPE_F16, HEAD);
    struct ggml_tensor *k = ggml_view_3d(context, layer->key_cache, HEAD, CONTEXT, KV_HEADS, row, head, 0);
    struct ggml_tensor *v = ggml_view_3d(context, layer->value_cache, HEAD, CONTEXT, KV_HEADS, row, head, 0);
    struct ggml_tensor *q = ggml_permute(context, query, 0, 2, 1, 3);
    struct ggml_tensor *scores = ggml_mul_mat(context, k, q);
    scores = ggml_soft_max_ext(context, scores, mask, 0.125f, 0.0f);
    struct ggml_tensor *transposed = ggml_cont(context, ggml_permute(context, v, 1, 0, 2, 3));
    struct ggml_tensor *result = ggml_mul_mat(context, transposed, scores);
    result = ggml_cont_2d(context, ggml_permute(context, result, 0, 2, 1, 3), WIDTH, 1);
    return ggml_mul_mat(context, layer->output, result);
}

static void check(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "ggml_decode: %s failed\n", what);
        exit(2);
    }
}

int main(void)
{
    ggml_backend_t cuda = ggml_backend_cuda_init(0), cpu = ggml_backend_cpu_init();
    check(cuda && cpu, "the start of the back ends");
    struct ggml_init_params empty = {ggml_tensor_overhead() * 64, NULL, true};
    struct ggml_context *weights = ggml_init(empty);
    make_weights(weights);
    ggml_backend_buffer_t memory = ggml_backend_alloc_ctx_tensors(weights, cuda);
    check(memory != NULL, "allocating the weights");
    fill_weights(weights);

    struct ggml_init_params nodes = {ggml_tensor_overhead() * 1024 + ggml_graph_overhead(), NULL, true};
    struct ggml_context *context = ggml_init(nodes);
    struct ggml_cgraph *graph = ggml_new_graph(context);
    struct ggml_tensor *token = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
    struct ggml_tensor *position = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
    struct ggml_tensor *slot = ggml_new_tensor_1d(context, GGML_TYPE_I64, 1);
    struct ggml_tensor *mask = ggml_new_tensor_2d(context, GGML_TYPE_F32, CONTEXT, 1);
    struct ggml_tensor *inputs[] = {token, position, slot, mask};
    for (int i = 0; i < 4; i++)
        ggml_set_input(inputs[i]);
    struct ggml_tensor *x = ggml_get_rows(context, model.embedding, token);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *layer = &model.layers[i];
        struct ggml_tensor *n = normed(context, x, layer->attention_norm, "attn_norm", i);
        x = ggml_add(context, x, attention(context, graph, layer, n, position, slot, mask, i));
        n = normed(context, x, layer->ffn_norm, "ffn_norm", i);
        struct ggml_tensor *h =
            ggml_swiglu_split(context, ggml_mul_mat(context, layer->gate, n), ggml_mul_mat(context, layer->up, n));
        x = ggml_add(context, x, ggml_mul_mat(context, layer->down, h));
    }
    struct ggml_tensor *logits = ggml_mul_mat(context, model.head, normed(context, x, model.norm, "norm", 0));
    ggml_set_output(logits);
    ggml_build_forward_expand(graph, logits);

    ggml_backend_t backends[] = {cuda, cpu};
    ggml_backend_sched_t schedule = ggml_backend_sched_new(backends, NULL, 2, 1024, false, true);
    check(ggml_backend_sched_alloc_graph(schedule, graph), "allocating the graph");

    int32_t token_id = 17, at = POSITION;
    int64_t row = POSITION;
    float open[CONTEXT];
    for (int i = 0; i < CONTEXT; i++)
        open[i] = i <= POSITION ? 0.0f : -1e9f;
    float *first = malloc(VOCABULARY * sizeof *first), *now = malloc(VOCABULARY * sizeof *now);
    int wrong = 0;
    for (int step = 0; step < STEPS; step++) {
        ggml_backend_tensor_set(token, &token_id, 0, sizeof token_id);
        ggml_backend_tensor_set(position, &at, 0, sizeof at);
        ggml_backend_tensor_set(slot, &row, 0, sizeof row);
        ggml_backend_tensor_set(mask, open, 0, sizeof open);
        check(ggml_backend_sched_graph_compute(schedule, graph) == GGML_STATUS_SUCCESS, "a step");
        ggml_backend_tensor_get(logits, step ? now : first, 0, VOCABULARY * sizeof *now);
        wrong += step && memcmp(first, now, VOCABULARY * sizeof *now) != 0;
    }
    printf("wrong %d of %d replays\n", wrong, STEPS - 1);
    ggml_backend_sched_free(schedule);
    ggml_free(context);
    ggml_backend_buffer_free(memory);
    ggml_free(weights);
    ggml_backend_free(cuda);
    ggml_backend_free(cpu);
    free(first);
    free(now);
    return 0;
}
