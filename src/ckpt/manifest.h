/* A manifest: the part of one checkpoint that one server process wrote.
 *
 * A checkpoint has a number, and consists of one manifest for each server process of the job, each
 * with a data file for each of that server's shards. It is complete when the manifests of all
 * shards exist. A delta contains only the rows that changed since the checkpoint that its manifest
 * names as `base`; it is read after that one.
 *
 * If too many rows were removed to list them, a delta has all rows of a table, which replaces that
 * of the base. Readers of version 2 do not know this, so such a manifest is of version 3.
 *
 * A manifest is a sealed JSON object (ckpt/sealed.h), and a record of the directory's log
 * (ckpt/log.h). Manifests of version 1, of earlier releases, are separate files next to the data:
 *
 *     000000000012-0000-0001.manifest                  of the server with the shards 0 and 1
 *     000000000012-0000.safetensors                    its shard 0
 *     000000000013-0000-000000000057.safetensors       version 2: shard 0, process of claim 57
 *
 * Not here: the content of the data files (node/checkpoint_data.h).
 *
 * Source: docs/CHECKPOINTS.md.
 */
#ifndef WEFT_CKPT_MANIFEST_H
#define WEFT_CKPT_MANIFEST_H

#include "ckpt/disk.h"

#include <stdbool.h>
#include <stdio.h>

#define WEFT_CKPT_NUMBER_MAX UINT64_C(999999999999)

enum {
    WEFT_CKPT_VERSION = 3,
    WEFT_CKPT_VERSION_PLAIN = 2, /* no table of the part replaces that of its base */
    WEFT_CKPT_SHARDS_MAX = 4096,
    WEFT_CKPT_CHAIN_MAX = 1024, /* deltas on top of one whole checkpoint */
};

struct weft_ckpt_manifest {
    uint64_t number;
    uint64_t base;   /* of a delta; 0 = whole. Numbers start at 1 */
    uint64_t claim;  /* serial of the writer's claim; 0 = version 1 */
    uint32_t shards; /* in the job */
    uint32_t first;  /* shard of files[0] */
    uint32_t count;
    bool has_clock; /* false: of an earlier release */
    uint32_t clock; /* at which the part was ordered: with several servers the same in all parts of
                     * a number. Tables may have been cut at a later clock */
    bool replaces;  /* of a delta: some tables have all rows, and replace those of the base */
    struct weft_ckpt_file *files; /* (count,): shards first .. first + count - 1 */
};

/* Name of a manifest file of version 1; out has WEFT_CKPT_FILE_BYTES. */
void weft_ckpt_manifest_name(uint64_t number, uint32_t first, uint32_t count, char *out);

/* claim 0: of version 1. Names with a claim are unique to one process. */
void weft_ckpt_data_name(uint64_t number, uint32_t shard, uint64_t claim, char *out);

/* Print the text, to be sealed with weft_ckpt_sealed_fill. */
void weft_ckpt_manifest_print(const struct weft_ckpt_manifest *manifest, FILE *out);

/* Shape:   bytes (count,), modified during the call.
 * Owns:    gives manifest_p->files.
 * Errors:  WEFT_DATA  damaged. WEFT_UNSUPPORTED  of a later version. WEFT_NOMEM. */
weft_status weft_ckpt_manifest_parse(char *bytes, size_t count,
                                     struct weft_ckpt_manifest *manifest_p,
                                     struct weft_error *error);
void weft_ckpt_manifest_fini(struct weft_ckpt_manifest *manifest);

#endif
