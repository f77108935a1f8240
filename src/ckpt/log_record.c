#include "ckpt/log_record.h"

#include "ckpt/json.h"
#include "ckpt/sealed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "weft-checkpoint-log"

/* ---- writing --------------------------------------------------------------------------------- */

/* Print a string that needs no escape in JSON. */
static void print_word(FILE *out, const char *name, const char *text)
{
    fprintf(out, "  \"%s\": \"", name);
    for (; *text != '\0'; text++) {
        bool plain = *text > ' ' && *text < 127 && *text != '"' && *text != '\\';
        fputc(plain ? *text : '_', out);
    }
    fputs("\",\n", out);
}

static void print_claim(const struct weft_ckpt_claim *claim, FILE *out)
{
    fprintf(out, "  \"shards\": %u,\n  \"first\": %u,\n  \"count\": %u,\n", claim->shards,
            claim->first, claim->count);
    fprintf(out, "  \"process\": \"%016" PRIx64 "\",\n  \"pid\": %" PRIu64 ",\n", claim->process,
            claim->pid);
    print_word(out, "host", claim->host);
    print_word(out, "time", claim->time);
}

static void print(const struct weft_ckpt_record *record, FILE *out)
{
    if (record->kind == WEFT_CKPT_RECORD_MANIFEST) {
        weft_ckpt_manifest_print(&record->manifest, out);
        return;
    }
    fprintf(out, "{\n  \"format\": \"" FORMAT "\",\n  \"version\": %d,\n", WEFT_CKPT_LOG_VERSION);
    if (record->kind == WEFT_CKPT_RECORD_CLAIM) {
        fputs("  \"kind\": \"claim\",\n", out);
        print_claim(&record->claim, out);
    } else {
        fprintf(out,
                "  \"kind\": \"restored\",\n  \"claim\": %" PRIu64 ",\n  \"number\": %" PRIu64
                ",\n  \"journal\": %s,\n",
                record->restored.claim, record->restored.number,
                record->restored.journal ? "true" : "false");
    }
    weft_ckpt_sealed_end(out);
}

weft_status weft_ckpt_record_print(const struct weft_ckpt_record *record, char **bytes_p,
                                   size_t *count_p, struct weft_error *error)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    if (out == NULL) {
        return weft_fail(error, WEFT_NOMEM, "no memory for a record");
    }
    print(record, out);
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(bytes);
        return weft_fail(error, WEFT_NOMEM, "no memory for a record");
    }
    weft_ckpt_sealed_fill(bytes, count);
    *bytes_p = bytes;
    *count_p = count;
    return WEFT_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool take_word(const cJSON *root, const char *name, char *out, size_t bytes)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, name);
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= bytes) {
        return false;
    }
    memcpy(out, item->valuestring, strlen(item->valuestring) + 1);
    return true;
}

static bool take_claim(const cJSON *root, struct weft_ckpt_claim *claim)
{
    uint64_t shards, first, count;
    char process[17], *end;
    if (!weft_ckpt_json_number(root, "shards", WEFT_CKPT_SHARDS_MAX, &shards) ||
        !weft_ckpt_json_number(root, "first", WEFT_CKPT_SHARDS_MAX, &first) ||
        !weft_ckpt_json_number(root, "count", WEFT_CKPT_SHARDS_MAX, &count) || count == 0 ||
        first + count > shards || !take_word(root, "process", process, sizeof(process)) ||
        !weft_ckpt_json_number(root, "pid", UINT64_C(1) << 53, &claim->pid) ||
        !take_word(root, "host", claim->host, sizeof(claim->host)) ||
        !take_word(root, "time", claim->time, sizeof(claim->time))) {
        return false;
    }
    claim->shards = (uint32_t)shards;
    claim->first = (uint32_t)first;
    claim->count = (uint32_t)count;
    claim->process = strtoull(process, &end, 16);
    return strlen(process) == 16 && *end == '\0';
}

static bool take_restored(const cJSON *root, struct weft_ckpt_restored *restored)
{
    const cJSON *journal = cJSON_GetObjectItemCaseSensitive(root, "journal");
    restored->journal = cJSON_IsTrue(journal);
    return cJSON_IsBool(journal) &&
           weft_ckpt_json_number(root, "claim", WEFT_CKPT_NUMBER_MAX, &restored->claim) &&
           weft_ckpt_json_number(root, "number", WEFT_CKPT_NUMBER_MAX, &restored->number);
}

static weft_status take_all(const cJSON *root, struct weft_ckpt_record *record,
                            struct weft_error *error)
{
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(root, "kind");
    uint64_t version;
    if (!weft_ckpt_json_number(root, "version", UINT32_MAX, &version)) {
        return weft_fail(error, WEFT_DATA, "it is not a record of a checkpoint directory");
    }
    if (version > WEFT_CKPT_LOG_VERSION) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "it is of version %" PRIu64 "; this release reads up to version %d: "
                         "use the release that wrote it, or a later one",
                         version, WEFT_CKPT_LOG_VERSION);
    }
    bool good = false;
    if (cJSON_IsString(kind) && strcmp(kind->valuestring, "claim") == 0) {
        record->kind = WEFT_CKPT_RECORD_CLAIM;
        good = take_claim(root, &record->claim);
    } else if (cJSON_IsString(kind) && strcmp(kind->valuestring, "restored") == 0) {
        record->kind = WEFT_CKPT_RECORD_RESTORED;
        good = take_restored(root, &record->restored);
    }
    return good ? WEFT_OK : weft_fail(error, WEFT_DATA, "it contradicts itself");
}

weft_status weft_ckpt_record_parse(char *bytes, size_t count, struct weft_ckpt_record *record_p,
                                   struct weft_error *error)
{
    struct weft_ckpt_record record = {0};
    if (!weft_ckpt_sealed_good(bytes, count)) {
        return weft_fail(error, WEFT_DATA, "it is damaged");
    }
    cJSON *root = cJSON_ParseWithLength(bytes, count);
    if (root == NULL) {
        /* The checksum is right, so the bytes are as written. */
        return weft_fail(error, WEFT_NOMEM, "out of memory while reading it, or it is not JSON");
    }
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    bool is_log = cJSON_IsString(format) && strcmp(format->valuestring, FORMAT) == 0;
    weft_status status = WEFT_OK;
    if (is_log) {
        status = take_all(root, &record, error);
    }
    cJSON_Delete(root);
    if (!is_log) {
        record.kind = WEFT_CKPT_RECORD_MANIFEST;
        status = weft_ckpt_manifest_parse(bytes, count, &record.manifest, error);
    }
    if (status == WEFT_OK) {
        *record_p = record;
    }
    return status;
}

void weft_ckpt_record_fini(struct weft_ckpt_record *record)
{
    if (record->kind == WEFT_CKPT_RECORD_MANIFEST) {
        weft_ckpt_manifest_fini(&record->manifest);
    }
}
