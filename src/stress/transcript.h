// Keeps what was said in a session that went wrong: one JSON file a session (schema "gravel-transcript").
#ifndef GV_STRESS_TRANSCRIPT_H
#define GV_STRESS_TRANSCRIPT_H

#include "base/error.h"
#include "stress/oracle.h"
#include "stress/session.h"

// Adds a round that was not clean to `findings`, which collects the members of a JSON list.
void gv_transcript_add(gv_string *findings, size_t round, const gv_turn *turn, const gv_reply *reply,
                       const gv_judgement *judgement);

typedef struct gv_transcript {
    const char *folder, *scenario, *model, *url, *key;
    uint64_t seed;
    size_t session;
    const char *request_id;    // of the session's requests, without the round
    const gv_string *findings; // from gv_transcript_add
    const gv_string *messages; // what was sent in all, the members of a JSON list
} gv_transcript;

// Writes FOLDER/session-NNNNNN.json, making the folder. The key is taken out. GV_ERR_IO or GV_ERR_MEMORY.
gv_status gv_transcript_write(const gv_transcript *transcript, gv_error *error);

// Makes the folder and removes the transcripts that an earlier run left in it.
gv_status gv_transcripts_prepare(const char *folder, gv_error *error);

#endif
