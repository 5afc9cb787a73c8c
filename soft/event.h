// Events.
#ifndef GRAVEL_SOFT_EVENT_H
#define GRAVEL_SOFT_EVENT_H

#include "soft/capture.h"
#include "soft/schedule.h"

struct CUevent_st {
    struct object object;
    unsigned references; // the program's handle, and graph nodes
    CUcontext context;
    unsigned flags;
    struct task *task; // the latest record, counted; NULL: never recorded
    struct captured_event captured;
};

CUevent event_keep(CUevent event);
void event_drop(CUevent event);

// The event's latest record is this task.
void event_set_task(CUevent event, struct task *task);

#endif
