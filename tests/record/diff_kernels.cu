// Kernels of the tests of the differential. Those with `static` variables stand for what a GPU does by itself: they are
// not in the driver's memory, so that nothing saves them and puts them back.
#include "soft/kernel.h"

#ifndef __CUDACC__
#include <signal.h>
#include <unistd.h>
#endif

GRAVEL_KERNEL(fill_f32, (float *, out), (float, value), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = value;
}

GRAVEL_KERNEL(add_f32, (const float *, in), (float *, out), (float, value), (int, count))
{
    int i = (int)gravel_thread_index();
    if (i < count)
        out[i] = in[i] + value;
}

GRAVEL_KERNEL(count_up, (int *, counter))
{
    if (gravel_thread_index() == 0)
        *counter += 1;
}

// Counts where a table says.
GRAVEL_KERNEL(count_through, (const unsigned long long *, table))
{
    if (gravel_thread_index() == 0)
        *(int *)table[0] += 1;
}

// Counts in the first word of each 4 KiB.
GRAVEL_KERNEL(count_groups, (int *, memory), (int, groups))
{
    int i = (int)gravel_thread_index();
    if (i < groups)
        memory[i * 1024] += 1;
}

GRAVEL_KERNEL(set_flag, (int *, flag))
{
    if (gravel_thread_index() == 0)
        atomicExch(flag, 1);
}

// From launch number `from` on, waits for the flag.
GRAVEL_KERNEL(wait_late, (int *, flag), (const int *, launches), (int, from))
{
    if (gravel_thread_index() != 0 || *launches < from)
        return;
    while (!atomicAdd(flag, 0))
        gravel_spin_ns(10000);
}

// The sum of `in` by atomic additions. Which block of a GPU comes first is not fixed: here each launch begins with
// another element.
GRAVEL_KERNEL(sum_f32, (const float *, in), (float *, sum), (int, count))
{
#ifndef __CUDACC__
    static int launches;
    if (gravel_thread_index() != 0)
        return;
    launches++;
    *sum = 0;
    for (int i = 0; i < count; i++)
        atomicAdd(sum, in[(i + launches * 7) % count]);
#endif
}

// Stores at an address that the parameters do not show: what the recorder cannot know of. `first_only`: in the first
// launch alone, and always another value otherwise.
GRAVEL_KERNEL(write_unseen, (unsigned long long, turned), (int, first_only))
{
#ifndef __CUDACC__
    static int launches;
    if (gravel_thread_index() != 0 || (launches++ && first_only))
        return;
    *(volatile int *)(unsigned long)~turned = 1000 + launches;
#endif
}

// Ends the process when it runs for the second time.
GRAVEL_KERNEL(kill_at_second, (int *, unused))
{
#ifndef __CUDACC__
    static int launches;
    if (gravel_thread_index() == 0 && launches++ == 1)
        kill(getpid(), SIGKILL);
#endif
}
