/* Which checkpoints a directory holds, and which one counts.
 *
 * A checkpoint has a number, and consists of one manifest for each server process of the job, each
 * with a data file for each of that server's shards:
 *
 *     000000000012-0000-0001.manifest              of the server with the shards 0 and 1
 *     000000000012-0000.safetensors                shard 0
 *
 * Renaming the manifest into place is the moment from which on the server's part is there; the
 * checkpoint counts when the manifests of all shards are there. A delta has only the rows that
 * changed since the checkpoint that its manifest names as `base`; it is read after that one.
 *
 * A manifest is a JSON object. Its last member is a checksum of all of its bytes, the 16 digits of
 * the checksum taken as zeros.
 *
 * Not here: what lies in the data files (cli/checkpoint.h).
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_MANIFEST_H
#define WEFT_CKPT_MANIFEST_H

#include "ckpt/disk.h"

enum {
    WEFT_CKPT_VERSION = 1,
    WEFT_CKPT_SHARDS_MAX = 4096,
    WEFT_CKPT_CHAIN_MAX = 1024, /* deltas upon one whole checkpoint */
};

struct weft_ckpt_manifest {
    uint64_t number;
    uint64_t base; /* of a delta; 0 = whole. Numbers begin at 1 */
    uint32_t shards; /* of the job */
    uint32_t first;  /* shard of files[0] */
    uint32_t count;
    struct weft_ckpt_file *files; /* (count,): shards first .. first + count - 1 */
};

/* The file names; out has WEFT_CKPT_FILE_BYTES. */
void weft_ckpt_manifest_name(uint64_t number, uint32_t first, uint32_t count, char *out);
void weft_ckpt_data_name(uint64_t number, uint32_t shard, char *out);

/* Synchronise the directory, write the manifest, synchronise again: after OK it survives.
 * Errors: WEFT_IO, WEFT_NOMEM: then it does not count. */
weft_status weft_ckpt_manifest_commit(const char *directory,
                                      const struct weft_ckpt_manifest *manifest,
                                      struct weft_ckpt_error *error);

/* Owns:    gives manifest_p->files. Errors: WEFT_DATA  damaged, or of another version. */
weft_status weft_ckpt_manifest_parse(const char *bytes, size_t count,
                                     struct weft_ckpt_manifest *manifest_p,
                                     struct weft_ckpt_error *error);
void weft_ckpt_manifest_fini(struct weft_ckpt_manifest *manifest);

/* A checkpoint that was found whole: the files of each of its shards, oldest first. */
struct weft_ckpt_set {
    uint64_t number; /* 0 = there is none */
    uint32_t shards;
    uint32_t file_count;
    struct {
        uint32_t shard;
        struct weft_ckpt_file file;
    } *files; /* shard by shard, in each from the whole one to the last delta */
};

/* Called for every checkpoint that is passed over because something of it is missing or damaged. */
typedef void weft_ckpt_complaint(void *arg, uint64_t number, const char *text);

/* Find the newest checkpoint of which every byte is good; set_p->number is 0 when there is none.
 * Errors: WEFT_IO  the directory cannot be read. WEFT_NOMEM. */
weft_status weft_ckpt_find(const char *directory, weft_ckpt_complaint *complain, void *arg,
                           struct weft_ckpt_set *set_p, struct weft_ckpt_error *error);
void weft_ckpt_set_fini(struct weft_ckpt_set *set);

/* Numbers that have all their manifests, by their names alone: the newest, 0 = none.
 * Errors: WEFT_IO, WEFT_NOMEM. */
weft_status weft_ckpt_newest(const char *directory, uint64_t *number_p,
                             struct weft_ckpt_error *error);

/* True when there is a manifest of any number. Errors: WEFT_IO, WEFT_NOMEM. */
weft_status weft_ckpt_any(const char *directory, bool *any_p, struct weft_ckpt_error *error);

/* Remove manifests beyond `number`: of a run that did not get as far as to count.
 * Errors: WEFT_IO, WEFT_NOMEM. */
weft_status weft_ckpt_drop_after(const char *directory, uint64_t number, uint32_t first,
                                 uint32_t last,
                                 struct weft_ckpt_error *error);

/* Keep the newest `keep` >= 1 checkpoints that have all their manifests, what their deltas are based
 * on, and what is newer; remove the rest.
 * Errors: WEFT_IO, WEFT_NOMEM: something is left over, and nothing that counts is gone. */
weft_status weft_ckpt_prune(const char *directory, uint32_t keep, struct weft_ckpt_error *error);

#endif
