/* The records of a checkpoint directory's log (ckpt/log.h): claims, restores and manifests. Formats
 * only; their combined meaning is in ckpt/history.h.
 *
 *     claim     this process writes the parts of these shards from here on
 *     restored  the process of that claim has read checkpoint `number`, and starts to serve
 *     manifest  a part of a checkpoint is on the disk (ckpt/manifest.h)
 *
 * A record is a sealed JSON object (ckpt/sealed.h). Its serial number is only in its file's name,
 * so the bytes need not change if another process uses the number first.
 *
 * Source: docs/CHECKPOINTS.md, "Files".
 */
#ifndef WEFT_CKPT_LOG_RECORD_H
#define WEFT_CKPT_LOG_RECORD_H

#include "ckpt/manifest.h"

enum { WEFT_CKPT_LOG_VERSION = 1, WEFT_CKPT_HOST_BYTES = 64, WEFT_CKPT_TIME_BYTES = 32 };

struct weft_ckpt_claim {
    uint32_t shards; /* in the job */
    uint32_t first;  /* the first shard of the process */
    uint32_t count;
    uint64_t process; /* random */
    uint64_t pid;     /* this and the next two are for people */
    char host[WEFT_CKPT_HOST_BYTES];
    char time[WEFT_CKPT_TIME_BYTES]; /* UTC */
};

struct weft_ckpt_restored {
    uint64_t claim;  /* serial */
    uint64_t number; /* 0 = it started empty */
    bool journal;    /* the process writes journals of its shards */
};

enum weft_ckpt_record_kind {
    WEFT_CKPT_RECORD_CLAIM,
    WEFT_CKPT_RECORD_RESTORED,
    WEFT_CKPT_RECORD_MANIFEST,
};

struct weft_ckpt_record {
    enum weft_ckpt_record_kind kind;
    union {
        struct weft_ckpt_claim claim;
        struct weft_ckpt_restored restored;
        struct weft_ckpt_manifest manifest;
    };
};

/* Encode a record, to be freed by the caller. Characters of host and time that JSON would escape
 * become '_'.
 * Errors: WEFT_NOMEM. */
weft_status weft_ckpt_record_print(const struct weft_ckpt_record *record, char **bytes_p,
                                   size_t *count_p, struct weft_error *error);

/* Shape:   bytes (count,), modified during the call.
 * Owns:    gives *record_p, to be ended with weft_ckpt_record_fini.
 * Errors:  WEFT_DATA  damaged. WEFT_UNSUPPORTED  of a later version: written by a newer release.
 *          WEFT_NOMEM. */
weft_status weft_ckpt_record_parse(char *bytes, size_t count, struct weft_ckpt_record *record_p,
                                   struct weft_error *error);
void weft_ckpt_record_fini(struct weft_ckpt_record *record);

#endif
