// A lock whose holders take turns in the order in which they came. With a mutex the stepping thread, which needs it
// again as soon as it has given it back, keeps out whoever waits for as long as there is work: an import then comes
// after many steps instead of one.
#ifndef SPECIMEN_TURNS_H
#define SPECIMEN_TURNS_H

#include <pthread.h>
#include <stdint.h>

typedef struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t next;    // number of the next one to come
    uint64_t current; // number of the one whose turn it is, or who comes next
} turns;

void turns_begin(turns *t);
void turns_end(turns *t);

// Waits for its turn; not for a thread that has it already.
void turns_take(turns *t);
void turns_give(turns *t);

#endif
