// Kernels of the recorder's end-to-end tests.
#include "soft/kernel.h"

// buffer[i] = value
GRAVEL_KERNEL(fill, (int *, buffer), (int, count), (int, value))
{
    int i = gravel_thread_index();
    if (i < count)
        buffer[i] = value;
}

// sums[i] = buffer[i] + 1
GRAVEL_KERNEL(add_one, (const int *, buffer), (int *, sums), (int, count))
{
    int i = gravel_thread_index();
    if (i < count)
        sums[i] = buffer[i] + 1;
}

// Waits until *flag is set, or `limit_ms` have passed; says which.
GRAVEL_KERNEL(wait_for_flag, (int *, flag), (int *, seen), (int, limit_ms))
{
    int waited = 0;
    while (atomicAdd(flag, 0) == 0 && waited < limit_ms) {
        gravel_spin_ns(1000000);
        waited++;
    }
    *seen = atomicAdd(flag, 0);
}

GRAVEL_KERNEL(set_flag, (int *, flag), (int, value))
{
    atomicExch(flag, value);
}
