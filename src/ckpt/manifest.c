/* Manifests: their bytes. The directory is in directory.c. */
#include "ckpt/manifest.h"

#include "base/assert.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* How a manifest ends, and where the checksum stands in that. */
#define HASH_BEFORE "  \"xxh3_64\": \""
#define HASH_AFTER  "\"\n}\n"
enum { HASH_DIGITS = 16, HASH_FROM_END = HASH_DIGITS + sizeof(HASH_AFTER) - 1 };

void weft_ckpt_manifest_name(uint64_t number, uint32_t first, uint32_t count, char *out)
{
    snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u-%04u.manifest", number, first,
             first + count - 1);
}

void weft_ckpt_data_name(uint64_t number, uint32_t shard, char *out)
{
    snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u.safetensors", number, shard);
}

void weft_ckpt_manifest_fini(struct weft_ckpt_manifest *manifest)
{
    free(manifest->files);
    *manifest = (struct weft_ckpt_manifest){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

static void print(const struct weft_ckpt_manifest *m, FILE *out)
{
    fprintf(out,
            "{\n  \"format\": \"weft-checkpoint\",\n  \"version\": %d,\n"
            "  \"number\": %" PRIu64 ",\n  \"base\": %" PRIu64
            ",\n  \"shards\": %u,\n  \"first\": %u,\n  \"files\": [\n",
            WEFT_CKPT_VERSION, m->number, m->base, m->shards, m->first);
    for (uint32_t i = 0; i < m->count; i++) {
        fprintf(out,
                "    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"head_xxh3_64\": \"%016" PRIx64
                "\"}%s\n",
                m->files[i].name, m->files[i].bytes, m->files[i].head_hash,
                i + 1 < m->count ? "," : "");
    }
    fprintf(out, "  ],\n%s%016d%s", HASH_BEFORE, 0, HASH_AFTER);
}

static uint64_t hash_of(const char *bytes, size_t count)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash = 0;
    if (state != NULL) {
        static const char zeros[HASH_DIGITS + 1] = "0000000000000000";
        (void)XXH3_64bits_reset(state);
        (void)XXH3_64bits_update(state, bytes, count - HASH_FROM_END);
        (void)XXH3_64bits_update(state, zeros, HASH_DIGITS);
        (void)XXH3_64bits_update(state, HASH_AFTER, sizeof(HASH_AFTER) - 1);
        hash = XXH3_64bits_digest(state);
        XXH3_freeState(state);
    }
    return hash;
}

weft_status weft_ckpt_manifest_commit(const char *directory,
                                      const struct weft_ckpt_manifest *manifest,
                                      struct weft_ckpt_error *error)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    if (out == NULL) {
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    print(manifest, out);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(bytes);
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    char digits[HASH_DIGITS + 1];
    snprintf(digits, sizeof(digits), "%016" PRIx64, hash_of(bytes, count));
    memcpy(bytes + count - HASH_FROM_END, digits, HASH_DIGITS);
    char name[WEFT_CKPT_FILE_BYTES];
    weft_ckpt_manifest_name(manifest->number, manifest->first, manifest->count, name);
    weft_status status = weft_ckpt_sync_directory(directory, error);
    if (status == WEFT_OK) {
        status = weft_ckpt_write_file(directory, name, bytes, count, error);
    }
    if (status == WEFT_OK) {
        status = weft_ckpt_sync_directory(directory, error);
    }
    free(bytes);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool hash_good(const char *bytes, size_t count)
{
    static const size_t least = sizeof(HASH_BEFORE) - 1 + HASH_FROM_END;
    char digits[HASH_DIGITS + 1];
    if (count < least ||
        memcmp(bytes + count - least, HASH_BEFORE, sizeof(HASH_BEFORE) - 1) != 0 ||
        memcmp(bytes + count - (sizeof(HASH_AFTER) - 1), HASH_AFTER, sizeof(HASH_AFTER) - 1) !=
            0) {
        return false;
    }
    snprintf(digits, sizeof(digits), "%016" PRIx64, hash_of(bytes, count));
    return memcmp(bytes + count - HASH_FROM_END, digits, HASH_DIGITS) == 0;
}

static bool take_number(const cJSON *root, const char *name, uint64_t max, uint64_t *value_p)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > (double)max) {
        return false;
    }
    *value_p = (uint64_t)item->valuedouble;
    return true;
}

static bool take_hex(const cJSON *item, uint64_t *value_p)
{
    char *end;
    if (!cJSON_IsString(item) || strlen(item->valuestring) != HASH_DIGITS) {
        return false;
    }
    *value_p = strtoull(item->valuestring, &end, 16);
    return *end == '\0';
}

static bool take_file(const cJSON *item, const struct weft_ckpt_manifest *m, uint32_t i,
                      struct weft_ckpt_file *file)
{
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
    weft_ckpt_data_name(m->number, m->first + i, file->name);
    /* Names are ours to give: a manifest cannot point elsewhere. */
    return cJSON_IsString(name) && strcmp(name->valuestring, file->name) == 0 &&
           take_number(item, "bytes", UINT64_C(1) << 53, &file->bytes) &&
           take_hex(cJSON_GetObjectItemCaseSensitive(item, "head_xxh3_64"), &file->head_hash);
}

static weft_status take_all(const cJSON *root, struct weft_ckpt_manifest *m,
                            struct weft_ckpt_error *error)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    uint64_t version, shards, first;
    if (!cJSON_IsString(format) || strcmp(format->valuestring, "weft-checkpoint") != 0 ||
        !take_number(root, "version", UINT32_MAX, &version)) {
        return weft_ckpt_fail(error, WEFT_DATA, "it is no manifest of a checkpoint");
    }
    if (version != WEFT_CKPT_VERSION) {
        return weft_ckpt_fail(error, WEFT_DATA,
                              "it is of version %" PRIu64 "; this release reads version %d",
                              version, WEFT_CKPT_VERSION);
    }
    int count = cJSON_IsArray(files) ? cJSON_GetArraySize(files) : 0;
    uint64_t numbers_max = UINT64_C(999999999999);
    if (!take_number(root, "number", numbers_max, &m->number) || m->number == 0 ||
        !take_number(root, "base", m->number - 1, &m->base) ||
        !take_number(root, "shards", WEFT_CKPT_SHARDS_MAX, &shards) ||
        !take_number(root, "first", WEFT_CKPT_SHARDS_MAX, &first) || count < 1 ||
        first + (uint64_t)count > shards) {
        return weft_ckpt_fail(error, WEFT_DATA, "it contradicts itself");
    }
    m->shards = (uint32_t)shards;
    m->first = (uint32_t)first;
    m->count = (uint32_t)count;
    m->files = calloc(m->count, sizeof(*m->files));
    if (m->files == NULL) {
        return weft_ckpt_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    const cJSON *item;
    uint32_t i = 0;
    cJSON_ArrayForEach(item, files)
    {
        if (!take_file(item, m, i, &m->files[i])) {
            return weft_ckpt_fail(error, WEFT_DATA, "its list of files contradicts itself");
        }
        i++;
    }
    return WEFT_OK;
}

weft_status weft_ckpt_manifest_parse(const char *bytes, size_t count,
                                     struct weft_ckpt_manifest *manifest_p,
                                     struct weft_ckpt_error *error)
{
    if (!hash_good(bytes, count)) {
        return weft_ckpt_fail(error, WEFT_DATA, "it is damaged");
    }
    cJSON *root = cJSON_ParseWithLength(bytes, count);
    struct weft_ckpt_manifest manifest = {0};
    weft_status status = take_all(root, &manifest, error);
    cJSON_Delete(root);
    if (status != WEFT_OK) {
        weft_ckpt_manifest_fini(&manifest);
        return status;
    }
    *manifest_p = manifest;
    return WEFT_OK;
}
