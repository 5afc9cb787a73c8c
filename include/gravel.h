/* The C interface of gravel for programs that `gravel run` records. Header-only: every function looks the recorder up
 * in the process and does nothing when it is not there, so the calls can stay in the program.
 *
 * Build: needs nothing but this header, and -ldl where glibc is older than 2.34. Any thread may call any function.
 */
#ifndef GRAVEL_H
#define GRAVEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* RTLD_DEFAULT */
#endif
#include <dlfcn.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is the recorder in this process? 1 or 0. It may be there and have switched itself off. */
static inline int gravel_present(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    return found != 0;
}

/* Arms the next launch of each executable graph, in addition to what `gravel run --arm` chooses. Two limits: only
 * graphs that --graph names are armed, and under --arm none, which does not prepare for it, none is.
 */
static inline void gravel_arm_next(void)
{
    void (*volatile arm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    if (arm)
        arm();
}

/* Declares order that only the program knows, such as a lock or a queue between two threads: what the calling thread
 * enqueued, and what it synchronised with, before gravel_order_release(token) comes before what is enqueued after a
 * later gravel_order_acquire of the same token. Tokens are numbers that the program chooses. The trace keeps the order
 * (docs/order.md, rule 4); `gravel check` does not need it, since it compares nodes of one graph.
 */
static inline void gravel_order_release(uint64_t token)
{
    void (*volatile order)(uint64_t, int) = (void (*)(uint64_t, int))dlsym(RTLD_DEFAULT, "gravel_record_order");
    if (order)
        order(token, 0);
}

/* The other half: see gravel_order_release. */
static inline void gravel_order_acquire(uint64_t token)
{
    void (*volatile order)(uint64_t, int) = (void (*)(uint64_t, int))dlsym(RTLD_DEFAULT, "gravel_record_order");
    if (order)
        order(token, 1);
}

#ifdef __cplusplus
}
#endif

#endif
