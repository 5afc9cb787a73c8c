/* The public C interface of gravel, for programs that want to tell it something. Header-only: every function looks the
 * recorder up in the process and does nothing when it is not there, so that an engine can keep the calls in.
 *
 * Build: needs nothing but this header (and -ldl where glibc is older than 2.34).
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

/* Is the recorder in this process? */
static inline int gravel_present(void)
{
    void *volatile found = dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    return found != 0;
}

/* The next launch of each executable graph is watched node by node, whatever `gravel run --arm` says (but only graphs
 * that --graph names). Each launch that was due before and could not be watched is made up for as well.
 */
static inline void gravel_arm_next(void)
{
    void (*volatile arm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "gravel_record_arm_next");
    if (arm)
        arm();
}

/* Order that only the program knows of, such as a lock or a queue between two threads: what the caller's thread
 * enqueued and synchronised with before gravel_order_release(token) comes before what is enqueued after a later
 * gravel_order_acquire of the same token returns. Tokens are the program's own numbers; see docs/order.md.
 */
static inline void gravel_order_release(uint64_t token)
{
    void (*volatile order)(uint64_t, int) = (void (*)(uint64_t, int))dlsym(RTLD_DEFAULT, "gravel_record_order");
    if (order)
        order(token, 0);
}

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
