/* Manifests: encoding and parsing. The directory is in directory.c. */
#include "ckpt/manifest.h"

#include "ckpt/json.h"
#include "ckpt/sealed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HASH_DIGITS = 16 };

void weft_ckpt_manifest_name(uint64_t number, uint32_t first, uint32_t count, char *out)
{
    snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u-%04u.manifest", number, first,
             first + count - 1);
}

void weft_ckpt_data_name(uint64_t number, uint32_t shard, uint64_t claim, char *out)
{
    if (claim == 0) {
        snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u.safetensors", number, shard);
    } else {
        snprintf(out, WEFT_CKPT_FILE_BYTES, "%012" PRIu64 "-%04u-%012" PRIu64 ".safetensors",
                 number, shard, claim);
    }
}

void weft_ckpt_manifest_fini(struct weft_ckpt_manifest *manifest)
{
    free(manifest->files);
    *manifest = (struct weft_ckpt_manifest){0};
}

/* ---- writing --------------------------------------------------------------------------------- */

void weft_ckpt_manifest_print(const struct weft_ckpt_manifest *m, FILE *out)
{
    fprintf(out,
            "{\n  \"format\": \"weft-checkpoint\",\n  \"version\": %d,\n"
            "  \"number\": %" PRIu64 ",\n  \"base\": %" PRIu64 ",\n",
            m->claim == 0 ? 1
            : m->replaces ? WEFT_CKPT_VERSION
                          : WEFT_CKPT_VERSION_PLAIN,
            m->number, m->base);
    if (m->claim != 0) {
        fprintf(out, "  \"claim\": %" PRIu64 ",\n", m->claim);
    }
    if (m->has_clock) {
        fprintf(out, "  \"clock\": %u,\n", m->clock);
    }
    fprintf(out, "  \"shards\": %u,\n  \"first\": %u,\n  \"files\": [\n", m->shards, m->first);
    for (uint32_t i = 0; i < m->count; i++) {
        fprintf(out,
                "    {\"name\": \"%s\", \"bytes\": %" PRIu64 ", \"head_xxh3_64\": \"%016" PRIx64
                "\"}%s\n",
                m->files[i].name, m->files[i].bytes, m->files[i].head_hash,
                i + 1 < m->count ? "," : "");
    }
    fputs("  ],\n", out);
    weft_ckpt_sealed_end(out);
}

/* ---- reading --------------------------------------------------------------------------------- */

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
    weft_ckpt_data_name(m->number, m->first + i, m->claim, file->name);
    /* File names are derived from the numbers: a manifest cannot refer to other files. */
    return cJSON_IsString(name) && strcmp(name->valuestring, file->name) == 0 &&
           weft_ckpt_json_number(item, "bytes", UINT64_C(1) << 53, &file->bytes) &&
           take_hex(cJSON_GetObjectItemCaseSensitive(item, "head_xxh3_64"), &file->head_hash);
}

static weft_status take_all(const cJSON *root, struct weft_ckpt_manifest *m,
                            struct weft_error *error)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(root, "files");
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    uint64_t version, shards, first, clock = 0;
    if (!cJSON_IsString(format) || strcmp(format->valuestring, "weft-checkpoint") != 0 ||
        !weft_ckpt_json_number(root, "version", UINT32_MAX, &version)) {
        return weft_fail(error, WEFT_DATA, "it is not a manifest of a checkpoint");
    }
    if (version > WEFT_CKPT_VERSION) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "it is of version %" PRIu64 "; this release reads up to version %d: "
                         "use the release that wrote it, or a later one",
                         version, WEFT_CKPT_VERSION);
    }
    int count = cJSON_IsArray(files) ? cJSON_GetArraySize(files) : 0;
    m->claim = 0;
    m->replaces = version > WEFT_CKPT_VERSION_PLAIN;
    if (version > 1 &&
        (!weft_ckpt_json_number(root, "claim", WEFT_CKPT_NUMBER_MAX, &m->claim) || m->claim == 0)) {
        return weft_fail(error, WEFT_DATA, "it contradicts itself");
    }
    m->has_clock = cJSON_GetObjectItemCaseSensitive(root, "clock") != NULL;
    if ((m->has_clock && !weft_ckpt_json_number(root, "clock", UINT32_MAX, &clock)) ||
        !weft_ckpt_json_number(root, "number", WEFT_CKPT_NUMBER_MAX, &m->number) ||
        m->number == 0 || !weft_ckpt_json_number(root, "base", m->number - 1, &m->base) ||
        !weft_ckpt_json_number(root, "shards", WEFT_CKPT_SHARDS_MAX, &shards) ||
        !weft_ckpt_json_number(root, "first", WEFT_CKPT_SHARDS_MAX, &first) || count < 1 ||
        first + (uint64_t)count > shards) {
        return weft_fail(error, WEFT_DATA, "it contradicts itself");
    }
    m->clock = (uint32_t)clock;
    m->shards = (uint32_t)shards;
    m->first = (uint32_t)first;
    m->count = (uint32_t)count;
    m->files = calloc(m->count, sizeof(*m->files));
    if (m->files == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a manifest");
    }
    const cJSON *item;
    uint32_t i = 0;
    cJSON_ArrayForEach(item, files)
    {
        if (!take_file(item, m, i, &m->files[i])) {
            return weft_fail(error, WEFT_DATA, "its list of files contradicts itself");
        }
        i++;
    }
    return WEFT_OK;
}

weft_status weft_ckpt_manifest_parse(char *bytes, size_t count,
                                     struct weft_ckpt_manifest *manifest_p,
                                     struct weft_error *error)
{
    if (!weft_ckpt_sealed_good(bytes, count)) {
        return weft_fail(error, WEFT_DATA, "it is damaged");
    }
    cJSON *root = cJSON_ParseWithLength(bytes, count);
    struct weft_ckpt_manifest manifest = {0};
    if (root == NULL) {
        /* The checksum is right, so the bytes are as written. */
        return weft_fail(error, WEFT_NOMEM, "out of memory while reading it, or it is not JSON");
    }
    weft_status status = take_all(root, &manifest, error);
    cJSON_Delete(root);
    if (status != WEFT_OK) {
        weft_ckpt_manifest_fini(&manifest);
        return status;
    }
    *manifest_p = manifest;
    return WEFT_OK;
}
