/* Heads of data files, manifests and records of the log from arbitrary bytes: accepted ones must be
 * consistent. The first byte selects the kind. Manifests and records get a correct checksum,
 * otherwise all would be refused. */
#include "ckpt/history.h"
#include "ckpt/sealed.h"

#include "base/assert.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_head(const uint8_t *data, size_t size, uint64_t file_bytes)
{
    struct weft_ckpt_head head;
    struct weft_error error = {.text = ""};
    size_t used;
    if (weft_ckpt_head_parse(data, size, file_bytes, &head, &used, &error) != WEFT_OK) {
        WEFT_ASSERT(error.text[0] != '\0');
        return;
    }
    uint64_t at = 0;
    for (uint32_t i = 0; i < head.tensor_count; i++) {
        const struct weft_ckpt_tensor *t = &head.tensors[i];
        WEFT_ASSERT(t->offset == at && (t->dims == 1 || t->dims == 2));
        at += t->bytes;
    }
    WEFT_ASSERT(used <= size && used + at == file_bytes);
    weft_ckpt_head_fini(&head);
}

/* The bytes, and an end with the checksum that they should have; to be freed. */
static char *sealed(const uint8_t *data, size_t size, size_t *count_p)
{
    static const char end[] = "  \"xxh3_64\": \"0000000000000000\"\n}\n";
    char *text = malloc(size + sizeof(end));
    WEFT_ASSERT(text != NULL);
    memcpy(text, data, size);
    memcpy(text + size, end, sizeof(end));
    *count_p = size + sizeof(end) - 1;
    weft_ckpt_sealed_fill(text, *count_p);
    return text;
}

static void check_manifest(const struct weft_ckpt_manifest *manifest)
{
    WEFT_ASSERT(manifest->number > manifest->base && manifest->count >= 1 &&
                manifest->first + manifest->count <= manifest->shards);
    for (uint32_t i = 0; i < manifest->count; i++) {
        WEFT_ASSERT(strchr(manifest->files[i].name, '/') == NULL);
    }
}

static void try_manifest(const uint8_t *data, size_t size)
{
    size_t count;
    char *text = sealed(data, size, &count);
    struct weft_ckpt_manifest manifest;
    struct weft_error error = {.text = ""};
    if (weft_ckpt_manifest_parse(text, count, &manifest, &error) == WEFT_OK) {
        check_manifest(&manifest);
        weft_ckpt_manifest_fini(&manifest);
    }
    free(text);
}

/* Three times, as records of one log: the resulting history must be consistent. */
static void try_record(const uint8_t *data, size_t size)
{
    struct weft_ckpt_history history = {0};
    for (uint64_t serial = 1; serial <= 3; serial++) {
        size_t count;
        char *text = sealed(data, size, &count);
        struct weft_ckpt_record record;
        struct weft_error error = {.text = ""};
        if (weft_ckpt_record_parse(text, count, &record, &error) == WEFT_OK) {
            WEFT_ASSERT(record.kind != WEFT_CKPT_RECORD_CLAIM ||
                        (record.claim.count >= 1 &&
                         record.claim.first + record.claim.count <= record.claim.shards));
            (void)!weft_ckpt_history_add(&history, serial, &record);
        } else {
            WEFT_ASSERT(error.text[0] != '\0');
        }
        free(text);
    }
    for (size_t i = 0; i < history.part_count; i++) {
        check_manifest(&history.parts[i].manifest);
    }
    (void)weft_ckpt_history_newest(&history, UINT64_MAX);
    weft_ckpt_history_fini(&history);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    if (data[0] != 'r' && data[0] % 2 == 0) {
        uint64_t length = 0;
        memcpy(&length, data + 1, size - 1 < 8 ? size - 1 : 8);
        try_head(data + 1, size - 1, size - 1 + data[0]);
        try_head(data + 1, size - 1, length + 8);
    } else if (data[0] == 'r') {
        try_record(data + 1, size - 1);
    } else {
        try_manifest(data + 1, size - 1);
    }
    return 0;
}
