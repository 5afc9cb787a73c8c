// Turns in order of arrival.
#include "specimen/turns.h"

void turns_begin(turns *t)
{
    *t = (turns){0};
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->changed, NULL);
}

void turns_end(turns *t)
{
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

void turns_take(turns *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t mine = t->next++;
    while (t->current != mine)
        pthread_cond_wait(&t->changed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

void turns_give(turns *t)
{
    pthread_mutex_lock(&t->lock);
    t->current++;
    // All of them, as only one of those that wait is the next.
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
}
