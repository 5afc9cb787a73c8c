// Kernels whose accesses the recorder is told not to see (GRAVEL_SOFT_BLIND). They stand for kernels that copy by tensor
// maps: a map says where a tensor of bytes begins and how far apart its rows are (src/record/test_map.h).
#include "soft/kernel.h"

typedef unsigned long long word;

typedef struct tensor {
    word words[16];
} __attribute__((aligned(64))) tensor;

GRAVEL_DEVICE unsigned char *row_of(const tensor *map, unsigned row)
{
    return (unsigned char *)(map->words[0] + row * ((map->words[1] >> 32) * 16));
}

// Each thread has one byte of a tensor of `columns` columns.
#define EACH(row, column, columns)                        \
    unsigned each_ = gravel_thread_index(), row = each_ / (columns), column = each_ % (columns)

// to = value
GRAVEL_KERNEL(tensor_fill, (tensor, to), (unsigned, columns), (unsigned, rows), (int, value))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(&to, row)[column] = (unsigned char)value;
}

// to = from + 1
GRAVEL_KERNEL(tensor_next, (tensor, from), (tensor, to), (unsigned, columns), (unsigned, rows))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(&to, row)[column] = row_of(&from, row)[column] + 1;
}

// to += 1
GRAVEL_KERNEL(tensor_increase, (tensor, to), (unsigned, columns), (unsigned, rows))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(&to, row)[column] += 1;
}

// Words of the tensor, added to atomically.
GRAVEL_KERNEL(tensor_add, (tensor, to), (unsigned, columns), (unsigned, rows), (int, value))
{
    EACH(row, column, columns);
    if (row < rows && column % 4 == 0)
        atomicAdd((int *)(row_of(&to, row) + column), value);
}

// As tensor_fill, and counts its blocks.
GRAVEL_KERNEL(tensor_fill_counted, (tensor, to), (unsigned, columns), (unsigned, rows), (int, value), (int *, counter))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(&to, row)[column] = (unsigned char)value;
    if (threadIdx.x == 0)
        atomicAdd(counter, 1);
}

// The value stands in memory: tensor = *value
GRAVEL_KERNEL(tensor_fill_from, (tensor, to), (unsigned, columns), (unsigned, rows), (const int *, value))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(&to, row)[column] = (unsigned char)*value;
}

// The map stands in memory.
GRAVEL_KERNEL(tensor_fill_through, (const tensor *, map), (unsigned, columns), (unsigned, rows), (int, value))
{
    EACH(row, column, columns);
    if (row < rows)
        row_of(map, row)[column] = (unsigned char)value;
}

// The first thread makes the map in memory and goes by it, as kernels for tensors do whose shape they compute themselves.
GRAVEL_KERNEL(tensor_fill_by_own, (tensor, to), (volatile uint64_t *, slot), (unsigned, columns), (unsigned, rows),
              (int, value))
{
    EACH(row, column, columns);
    uint64_t made = 0;
    if (row == 0 && column == 0) {
        for (int i = 0; i < 16; i++)
            slot[i] = to.words[i];
        for (int i = 0; i < 16; i++)
            made |= slot[i] ^ to.words[i];
    }
    if (row < rows && !made)
        row_of(&to, row)[column] = (unsigned char)value;
}

// to[i] = sum of what the i-th bytes of all inputs are, which an array of pointers leads to
GRAVEL_KERNEL(sum_all, (const unsigned char *const *, inputs), (int, input_count), (unsigned char *, to), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i >= count)
        return;
    unsigned char sum = 0;
    for (int k = 0; k < input_count; k++)
        sum = (unsigned char)(sum + inputs[k][i]);
    to[i] = sum;
}

GRAVEL_GLOBAL(unsigned char *, output);

// The host does not say where to write: a variable does.
GRAVEL_KERNEL(fill_output, (int, count), (int, value))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        output[i] = (unsigned char)value;
}

GRAVEL_KERNEL(set_output, (unsigned char *, to))
{
    if (gravel_thread_index() == 0)
        output = to;
}

GRAVEL_KERNEL(fill_plain, (unsigned char *, to), (int, count), (int, value))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        to[i] = (unsigned char)value;
}

GRAVEL_KERNEL(copy_plain, (const unsigned char *, from), (unsigned char *, to), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        to[i] = from[i];
}

// In its second run, and only then, it reads a byte of the tensor and stores what it finds: a kernel that does not do
// the same twice. What it counts is no memory of the driver's.
GRAVEL_KERNEL(tensor_fill_fickle, (tensor, to), (unsigned, columns), (unsigned, rows), (int, value))
{
    static unsigned runs;
    EACH(row, column, columns);
    if (each_ == 0)
        runs++;
    if (row < rows)
        row_of(&to, row)[column] = runs == 2 && each_ == 0 ? row_of(&to, 3)[5] : (unsigned char)value;
}
