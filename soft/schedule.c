// Tasks, their lists, the worker threads, and the three schedules.
#include "soft/schedule.h"

#include "soft/context.h"
#include "soft/event.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_WORKERS = 512, POLL_NS = 1000000, STALL_NAP_NS = 100000000, STALL_NAPS = 20, SLEEP_NS = 1000000 };

enum schedule_mode { SCHEDULE_FREE, SCHEDULE_SEEDED, SCHEDULE_SERIAL };

struct task_list {
    struct task *first, *last;
    size_t count;
};

// A host thread that waits for a task. `steps` not 0: it waits for so many turns at most.
struct waiter {
    struct task *target;
    uint64_t steps;
    bool satisfied;
    struct waiter *next;
};

static enum schedule_mode mode;
static struct task_list ready;  // ascending by sequence
static struct task_list parked; // value waits, ascending by sequence
static struct waiter *waiters;
static uint64_t last_sequence;
static unsigned worker_count, idle_count;
static pthread_cond_t work_there; // a worker is wanted
static pthread_cond_t work_done;  // some waiter is satisfied
static pthread_cond_t grids_done; // some kernel's grid-dependency wait is over

// Seeded schedule only.
static uint64_t random_state;
static struct task_list suspended; // in the middle of a kernel, ascending by sequence
static struct task *turn;          // the one task that may run
static bool turn_taken;            // a worker has it

static void wait_until(pthread_cond_t *condition, uint64_t nanoseconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t until = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec + nanoseconds;
    struct timespec limit = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
    pthread_cond_timedwait(condition, &driver_lock, &limit);
}

static void condition_initialise(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

// ---- Lists in order of sequence ----

static void list_insert(struct task_list *list, struct task *task)
{
    struct task *before = list->last; // most tasks are the youngest
    while (before && before->sequence > task->sequence)
        before = before->previous;
    task->previous = before;
    task->next = before ? before->next : list->first;
    *(before ? &before->next : &list->first) = task;
    *(task->next ? &task->next->previous : &list->last) = task;
    list->count++;
}

static void list_remove(struct task_list *list, struct task *task)
{
    *(task->previous ? &task->previous->next : &list->first) = task->next;
    *(task->next ? &task->next->previous : &list->last) = task->previous;
    task->next = task->previous = NULL;
    list->count--;
}

// ---- Tasks ----

struct task *task_new(CUcontext context)
{
    struct task *task = gv_calloc(1, sizeof *task);
    if (!task)
        return NULL;
    task->references = 1;
    task->missing = 1;
    task->context = context;
    task->own.kind = CU_GRAPH_NODE_TYPE_EMPTY;
    task->operation = &task->own;
    return task;
}

struct task *task_keep(struct task *task)
{
    if (task)
        task->references++;
    return task;
}

void task_drop(struct task *task)
{
    if (!task || --task->references)
        return;
    operation_clear(&task->own);
    recording_release(task->recording);
    task_drop(task->continuation);
    for (size_t i = 0; i < task->successor_count; i++)
        task_drop(task->successors[i].task);
    gv_free(task->successors);
    gv_free(task);
}

bool task_after_early(struct task *task, struct task *earlier, enum task_progress progress, bool waits)
{
    if (!earlier || earlier->state == TASK_DONE)
        return true;
    if (mode == SCHEDULE_SERIAL)
        progress = PROGRESS_DONE;
    bool released = earlier->reached >= progress;
    if (released && !waits)
        return true;
    if (!GV_GROW(earlier->successors, earlier->successor_capacity, earlier->successor_count + 1))
        return false;
    earlier->successors[earlier->successor_count++] =
        (struct successor){.task = task_keep(task), .after = (uint8_t)progress, .released = released, .waits = waits};
    task->missing += !released;
    task->unfinished += waits;
    return true;
}

bool task_after(struct task *task, struct task *earlier)
{
    return task_after_early(task, earlier, PROGRESS_DONE, false);
}

void task_failed(struct task *task, CUresult error)
{
    pthread_mutex_lock(&driver_lock);
    if (object_is(task->context, OBJECT_CONTEXT))
        task->context->error = error;
    pthread_mutex_unlock(&driver_lock);
}

static void worker_wanted(void);

static void make_ready(struct task *task)
{
    task->state = TASK_READY;
    list_insert(&ready, task);
    if (mode != SCHEDULE_SEEDED)
        worker_wanted();
}

void task_submit(struct task *task)
{
    task->sequence = ++last_sequence;
    task_keep(task); // the schedule's own, until it is done
    if (!--task->missing)
        make_ready(task);
}

// Lets those start that follow the task as far as it has come.
static void release_successors(struct task *task)
{
    for (size_t i = 0; i < task->successor_count; i++) {
        struct successor *successor = &task->successors[i];
        if (successor->released || successor->after > task->reached)
            continue;
        successor->released = true;
        if (!--successor->task->missing)
            make_ready(successor->task);
    }
}

void task_reach(struct task *task, enum task_progress progress)
{
    pthread_mutex_lock(&driver_lock);
    if (task->reached < progress) {
        task->reached = (uint8_t)progress;
        release_successors(task);
    }
    pthread_mutex_unlock(&driver_lock);
}

// The task is done: grid-dependency waits that wait for it may be over.
static void end_waits(struct task *task)
{
    bool over = false;
    for (size_t i = 0; i < task->successor_count; i++) {
        struct task *waiting = task->successors[i].task;
        if (!task->successors[i].waits || --waiting->unfinished)
            continue;
        over = true;
        if (waiting->blocked) {
            waiting->blocked = false;
            list_insert(&suspended, waiting);
        }
    }
    if (over)
        pthread_cond_broadcast(&grids_done);
}

// Tries parked value waits again.
static void resume_parked(void)
{
    for (struct task *task = parked.first, *next; task; task = next) {
        next = task->next;
        if (!operation_can_resume(task))
            continue;
        list_remove(&parked, task);
        make_ready(task);
    }
}

static void task_finish(struct task *task)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    task->finished_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    task->state = TASK_DONE;
    // What it recorded is whole from here on, even if an event still holds the task.
    recording_release(task->recording);
    task->recording = NULL;
    task_drop(task->continuation);
    task->continuation = NULL;
    // An event holds its task and the operation holds its event: this ends the circle, and the use of a plan's memory.
    operation_clear(&task->own);
    task->operation = &task->own;
    task->reached = PROGRESS_DONE;
    release_successors(task);
    end_waits(task);
    for (size_t i = 0; i < task->successor_count; i++)
        task_drop(task->successors[i].task);
    gv_free(task->successors);
    task->successors = NULL;
    task->successor_count = task->successor_capacity = 0;
    if (task->completed)
        task->completed(task->completed_user);
    bool satisfied = false;
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        if (waiter->target == task)
            satisfied = waiter->satisfied = true;
    if (satisfied)
        pthread_cond_broadcast(&work_done);
    resume_parked();
    task_drop(task);
}

// ---- Seeded schedule: whose turn it is ----

static uint64_t draw(void)
{
    // splitmix64: any seed, 0 included, gives a good sequence.
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static bool somebody_waits(void)
{
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        if (!waiter->satisfied)
            return true;
    return false;
}

// Gives the turn to one of the tasks that can run, if a host thread waits for the device. Device work stands still
// otherwise: what is there to choose from then depends on the program alone and not on how fast it is.
static void give_turn(void)
{
    if (turn || !somebody_waits())
        return;
    resume_parked();
    size_t count = ready.count + suspended.count;
    if (!count)
        return;
    size_t choice = draw() % count;
    struct task *task = choice < suspended.count ? suspended.first : ready.first;
    for (size_t i = choice < suspended.count ? choice : choice - suspended.count; i; i--)
        task = task->next;
    turn = task;
    turn_taken = false;
    if (task->state == TASK_READY)
        worker_wanted();
    else
        pthread_cond_signal(task->turn);
}

static void end_step(void)
{
    turn = NULL;
    bool satisfied = false;
    for (struct waiter *waiter = waiters; waiter; waiter = waiter->next)
        if (!waiter->satisfied && waiter->steps && !--waiter->steps)
            satisfied = waiter->satisfied = true;
    if (satisfied)
        pthread_cond_broadcast(&work_done);
    give_turn();
}

// Accesses until the next switch: all magnitudes from 1 to 1024 are equally likely, so that some seeds switch within
// a few accesses and others let a block of work through.
static uint64_t draw_budget(void)
{
    uint64_t random = draw();
    uint64_t scale = UINT64_C(1) << (random >> 32) % 11;
    return 1 + random % scale;
}

// Suspends the task until it is chosen again; `blocked`: it cannot be before its grid-dependency wait is over.
static void switch_task(struct observer *observer, bool blocked)
{
    pthread_cond_t my_turn;
    struct task *task = observer->task;
    condition_initialise(&my_turn);
    task->turn = &my_turn;
    task->blocked = blocked;
    if (!blocked)
        list_insert(&suspended, task);
    end_step();
    while (turn != task)
        pthread_cond_wait(&my_turn, &driver_lock);
    list_remove(&suspended, task);
    task->turn = NULL;
    pthread_cond_destroy(&my_turn);
    observer->budget = draw_budget();
}

void schedule_access(struct observer *observer)
{
    if (--observer->budget)
        return;
    pthread_mutex_lock(&driver_lock);
    switch_task(observer, false);
    pthread_mutex_unlock(&driver_lock);
}

void task_await(struct task *task, struct observer *observer)
{
    pthread_mutex_lock(&driver_lock);
    while (task->unfinished) {
        // What it waits for has begun, and so has a worker of its own or gets its turn.
        if (mode == SCHEDULE_SEEDED)
            switch_task(observer, true);
        else
            pthread_cond_wait(&grids_done, &driver_lock);
    }
    pthread_mutex_unlock(&driver_lock);
}

void schedule_spin(void *user, uint64_t nanoseconds)
{
    struct observer *observer = user;
    if (mode == SCHEDULE_SERIAL)
        return; // nothing else could run meanwhile
    if (mode == SCHEDULE_SEEDED) {
        // Time has no meaning here; a microsecond counts as one switch, up to a bound.
        uint64_t switches = 1 + nanoseconds / 1000;
        for (uint64_t i = 0; observer && observer->task && i < switches && i < 16; i++) {
            pthread_mutex_lock(&driver_lock);
            switch_task(observer, false);
            pthread_mutex_unlock(&driver_lock);
        }
        return;
    }
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    // A device's long kernels take no time of the host's processors.
    if (nanoseconds >= SLEEP_NS)
        nanosleep(&(struct timespec){(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)}, NULL);
    do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((uint64_t)(now.tv_sec - start.tv_sec) * 1000000000 + (uint64_t)now.tv_nsec - (uint64_t)start.tv_nsec <
             nanoseconds);
}

// ---- Workers ----

// The next task for a worker, or NULL.
static struct task *take_work(void)
{
    struct task *task = NULL;
    if (mode == SCHEDULE_SEEDED) {
        if (turn && !turn_taken && turn->state == TASK_READY) {
            task = turn;
            turn_taken = true;
        }
    } else {
        task = ready.first;
    }
    if (task) {
        list_remove(&ready, task);
        task->state = TASK_RUNNING;
    }
    return task;
}

static void run_task(struct task *task)
{
    struct observer observer = {.recording = task->recording};
    if (mode == SCHEDULE_SEEDED) {
        observer.task = task;
        observer.budget = draw_budget();
    }
    pthread_mutex_unlock(&driver_lock);
    enum run_result result = operation_run(task, observer.recording || observer.task ? &observer : NULL);
    pthread_mutex_lock(&driver_lock);
    if (result == RUN_PARKED) {
        task->state = TASK_READY;
        list_insert(&parked, task);
    } else {
        task_finish(task);
    }
    if (mode == SCHEDULE_SEEDED)
        end_step();
}

static void *worker_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&driver_lock);
    for (;;) {
        struct task *task = take_work();
        if (task) {
            run_task(task);
            continue;
        }
        idle_count++;
        // A value wait can be satisfied by the host's own store, which nobody announces.
        if (parked.first && mode != SCHEDULE_SEEDED) {
            wait_until(&work_there, POLL_NS);
            resume_parked();
        } else {
            pthread_cond_wait(&work_there, &driver_lock);
        }
        idle_count--;
    }
    return NULL;
}

// Wakes an idle worker or starts one. Kernels and host functions may wait for each other, so every ready task gets a
// thread of its own as long as the limit allows.
static void worker_wanted(void)
{
    size_t wanted = mode == SCHEDULE_FREE ? ready.count : 1;
    if (idle_count < wanted && worker_count < (mode == SCHEDULE_SERIAL ? 1 : MAX_WORKERS)) {
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        if (!pthread_create(&thread, &attributes, worker_main, NULL))
            worker_count++;
        pthread_attr_destroy(&attributes);
    }
    pthread_cond_signal(&work_there);
}

// Waits until a task is done, or for `steps` turns of the seeded schedule.
static void wait_for(struct task *task, uint64_t steps)
{
    struct waiter waiter = {.target = task, .steps = steps, .next = waiters};
    waiters = &waiter;
    while (!waiter.satisfied) {
        if (mode == SCHEDULE_SEEDED)
            give_turn();
        if (mode == SCHEDULE_SEEDED && !turn && steps)
            break; // nothing can run: a polling host must get its answer
        if (parked.first) {
            wait_until(&work_done, POLL_NS);
            resume_parked();
        } else {
            pthread_cond_wait(&work_done, &driver_lock);
        }
    }
    struct waiter **link = &waiters;
    while (*link != &waiter)
        link = &(*link)->next;
    *link = waiter.next;
}

void task_wait(struct task *task)
{
    if (!task || task->state == TASK_DONE)
        return;
    task_keep(task);
    wait_for(task, 0);
    task_drop(task);
}

bool task_done(struct task *task)
{
    if (!task || task->state == TASK_DONE)
        return true;
    if (mode != SCHEDULE_SEEDED)
        return false;
    task_keep(task);
    wait_for(task, 1);
    bool done = task->state == TASK_DONE;
    task_drop(task);
    return done;
}

// A host that waits by reading memory makes no call that would give the device a turn. When calls have stopped and
// work is left, this thread waits in its stead. Only such programs lose the promise of the same result: the silence is
// counted in naps, since a machine that stood still for seconds gives the program no more time than a nap in between.
static void *stall_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&driver_lock);
    uint64_t seen = 0;
    for (unsigned naps = 0;; naps++) {
        pthread_mutex_unlock(&driver_lock);
        nanosleep(&(struct timespec){.tv_nsec = STALL_NAP_NS}, NULL);
        pthread_mutex_lock(&driver_lock);
        uint64_t calls = driver_calls();
        if (calls != seen || somebody_waits()) {
            seen = calls;
            naps = 0;
        } else if (naps >= STALL_NAPS && (ready.count || suspended.count || parked.count)) {
            while (calls == driver_calls() && !somebody_waits() && (ready.count || suspended.count))
                wait_for(NULL, 1024);
        }
    }
    return NULL;
}

CUresult schedule_initialise(const char *name)
{
    if (!name || !*name || !strcmp(name, "free")) {
        mode = SCHEDULE_FREE;
    } else if (!strcmp(name, "serial")) {
        mode = SCHEDULE_SERIAL;
    } else if (!strncmp(name, "seed:", 5) && name[5] >= '0' && name[5] <= '9') {
        char *end;
        errno = 0;
        random_state = strtoull(name + 5, &end, 10);
        if (*end || errno)
            return CUDA_ERROR_INVALID_VALUE;
        mode = SCHEDULE_SEEDED;
        access_observe(1);
    } else {
        return CUDA_ERROR_INVALID_VALUE;
    }
    condition_initialise(&work_there);
    condition_initialise(&work_done);
    condition_initialise(&grids_done);
    if (mode == SCHEDULE_SEEDED) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, stall_main, NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_detach(thread);
    }
    return CUDA_SUCCESS;
}
