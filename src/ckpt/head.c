#include "ckpt/head.h"

#include "base/assert.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
    [WEFT_CKPT_U32] = {"U32", 4},
    [WEFT_CKPT_U64] = {"U64", 8},
    [WEFT_CKPT_F32] = {"F32", 4},
    [WEFT_CKPT_U8] = {"U8", 1},
};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

#define HASH_PREFIX "xxh3_64."

/* ---- building -------------------------------------------------------------------------------- */

/* Make room for one more item of `size` bytes, doubling the capacity. */
static void *grown(void *items, uint32_t count, size_t size)
{
    if (count != 0 && (count & (count - 1)) != 0) {
        return items;
    }
    return realloc(items, (count == 0 ? 1 : 2 * (size_t)count) * size);
}

static struct weft_ckpt_tensor *add_tensor(struct weft_ckpt_head *head)
{
    struct weft_ckpt_tensor *all = grown(head->tensors, head->tensor_count, sizeof(*head->tensors));
    if (all == NULL) {
        return NULL;
    }
    head->tensors = all;
    return memset(&all[head->tensor_count++], 0, sizeof(*all));
}

static struct weft_ckpt_metadata *add_metadata(struct weft_ckpt_head *head)
{
    struct weft_ckpt_metadata *all =
        grown(head->metadata, head->metadata_count, sizeof(*head->metadata));
    if (all == NULL) {
        return NULL;
    }
    head->metadata = all;
    return memset(&all[head->metadata_count++], 0, sizeof(*all));
}

static bool is_plain(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e || *text == '"' ||
            *text == '\\') {
            return false;
        }
    }
    return true;
}

void weft_ckpt_head_add(struct weft_ckpt_head *head, const char *name, enum weft_ckpt_type type,
                        uint64_t rows, uint64_t columns)
{
    uint64_t offset = weft_ckpt_head_data_bytes(head);
    struct weft_ckpt_tensor *tensor = add_tensor(head);
    if (tensor == NULL) {
        head->is_short = true;
        return;
    }
    WEFT_ASSERT(is_plain(name) && strlen(HASH_PREFIX) + strlen(name) < sizeof(tensor->name));
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    tensor->type = type;
    tensor->dims = columns == 0 ? 1 : 2;
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->offset = offset;
    tensor->bytes = rows * (columns == 0 ? 1 : columns) * types[type].bytes;
}

void weft_ckpt_head_note(struct weft_ckpt_head *head, const char *name, const char *format, ...)
{
    struct weft_ckpt_metadata *item = add_metadata(head);
    if (item == NULL) {
        head->is_short = true;
        return;
    }
    WEFT_ASSERT(strlen(name) < sizeof(item->name));
    snprintf(item->name, sizeof(item->name), "%s", name);
    va_list list;
    va_start(list, format);
    int length = vsnprintf(item->text, sizeof(item->text), format, list);
    va_end(list);
    WEFT_ASSERT(length >= 0 && (size_t)length < sizeof(item->text));
    WEFT_ASSERT(is_plain(item->name) && is_plain(item->text));
}

void weft_ckpt_head_fini(struct weft_ckpt_head *head)
{
    free(head->tensors);
    free(head->metadata);
    *head = (struct weft_ckpt_head){.tensors = NULL};
}

/* ---- lookup ---------------------------------------------------------------------------------- */

const struct weft_ckpt_tensor *weft_ckpt_head_find(const struct weft_ckpt_head *head,
                                                   const char *name)
{
    for (uint32_t i = 0; i < head->tensor_count; i++) {
        if (strcmp(head->tensors[i].name, name) == 0) {
            return &head->tensors[i];
        }
    }
    return NULL;
}

const char *weft_ckpt_head_text(const struct weft_ckpt_head *head, const char *name)
{
    for (uint32_t i = 0; i < head->metadata_count; i++) {
        if (strcmp(head->metadata[i].name, name) == 0) {
            return head->metadata[i].text;
        }
    }
    return NULL;
}

uint64_t weft_ckpt_head_data_bytes(const struct weft_ckpt_head *head)
{
    if (head->tensor_count == 0) {
        return 0;
    }
    const struct weft_ckpt_tensor *last = &head->tensors[head->tensor_count - 1];
    return last->offset + last->bytes;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print(const struct weft_ckpt_head *head, FILE *out)
{
    const char *comma = "";
    fputs("{\"__metadata__\":{", out);
    for (uint32_t i = 0; i < head->metadata_count; i++, comma = ",") {
        fprintf(out, "%s\"%s\":\"%s\"", comma, head->metadata[i].name, head->metadata[i].text);
    }
    for (uint32_t i = 0; i < head->tensor_count; i++, comma = ",") {
        fprintf(out, "%s\"" HASH_PREFIX "%s\":\"%016" PRIx64 "\"", comma, head->tensors[i].name,
                head->tensors[i].hash);
    }
    fputs("}", out);
    for (uint32_t i = 0; i < head->tensor_count; i++) {
        const struct weft_ckpt_tensor *t = &head->tensors[i];
        fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, t->name, types[t->type].name,
                t->shape[0]);
        if (t->dims == 2) {
            fprintf(out, ",%" PRIu64, t->shape[1]);
        }
        fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", t->offset,
                t->offset + t->bytes);
    }
    fputs("}", out);
}

weft_status weft_ckpt_head_print(const struct weft_ckpt_head *head, char **bytes_p, size_t *count_p)
{
    char *bytes = NULL;
    size_t count = 0;
    FILE *out = open_memstream(&bytes, &count);
    if (out == NULL) {
        return WEFT_NOMEM;
    }
    fwrite("\0\0\0\0\0\0\0\0", 1, sizeof(uint64_t), out);
    print(head, out);
    /* The format allows trailing spaces, so that the data is aligned. */
    for (long at = ftell(out); at % 8 != 0; at++) {
        fputc(' ', out);
    }
    bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(bytes);
        return WEFT_NOMEM;
    }
    uint64_t length = count - sizeof(length);
    memcpy(bytes, &length, sizeof(length));
    *bytes_p = bytes;
    *count_p = count;
    return WEFT_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* cJSON keeps numbers as doubles: exact up to 2^53, and no file is larger. */
static bool take_u64(const cJSON *item, uint64_t *value_p)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > (double)(UINT64_C(1) << 53)) {
        return false;
    }
    *value_p = (uint64_t)item->valuedouble;
    return (double)*value_p == item->valuedouble;
}

static bool take_type(const cJSON *item, enum weft_ckpt_type *type_p)
{
    for (int i = 0; cJSON_IsString(item) && i < TYPES; i++) {
        if (strcmp(item->valuestring, types[i].name) == 0) {
            *type_p = (enum weft_ckpt_type)i;
            return true;
        }
    }
    return false;
}

static bool take_shape(const cJSON *shape, struct weft_ckpt_tensor *tensor)
{
    int dims = cJSON_IsArray(shape) ? cJSON_GetArraySize(shape) : 0;
    if (dims < 1 || dims > 2) {
        return false;
    }
    tensor->dims = (uint32_t)dims;
    uint64_t count = 1;
    for (int i = 0; i < dims; i++) {
        if (!take_u64(cJSON_GetArrayItem(shape, i), &tensor->shape[i]) ||
            __builtin_mul_overflow(count, tensor->shape[i], &count)) {
            return false;
        }
    }
    return !__builtin_mul_overflow(count, (uint64_t)types[tensor->type].bytes, &tensor->bytes);
}

static bool take_tensor(const cJSON *item, uint64_t offset, struct weft_ckpt_tensor *tensor)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");
    uint64_t begin, end;
    if (item->string == NULL || strlen(item->string) >= sizeof(tensor->name) ||
        !take_type(cJSON_GetObjectItemCaseSensitive(item, "dtype"), &tensor->type) ||
        !take_shape(cJSON_GetObjectItemCaseSensitive(item, "shape"), tensor) ||
        !cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !take_u64(cJSON_GetArrayItem(offsets, 0), &begin) ||
        !take_u64(cJSON_GetArrayItem(offsets, 1), &end)) {
        return false;
    }
    snprintf(tensor->name, sizeof(tensor->name), "%s", item->string);
    tensor->offset = begin;
    return begin == offset && end >= begin && end - begin == tensor->bytes;
}

static bool take_metadata(const cJSON *item, struct weft_ckpt_metadata *metadata)
{
    if (item->string == NULL || !cJSON_IsString(item) ||
        strlen(item->string) >= sizeof(metadata->name) ||
        strlen(item->valuestring) >= sizeof(metadata->text)) {
        return false;
    }
    snprintf(metadata->name, sizeof(metadata->name), "%s", item->string);
    snprintf(metadata->text, sizeof(metadata->text), "%s", item->valuestring);
    return true;
}

static weft_status take_items(const cJSON *root, struct weft_ckpt_head *head,
                              struct weft_error *error)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "__metadata__"))
    {
        struct weft_ckpt_metadata *metadata =
            head->metadata_count < WEFT_CKPT_ITEMS_MAX ? add_metadata(head) : NULL;
        if (metadata == NULL) {
            return weft_fail(error, WEFT_NOMEM, "no memory for the head");
        }
        if (!take_metadata(item, metadata)) {
            return weft_fail(error, WEFT_DATA, "the head's metadata are not short texts");
        }
    }
    uint64_t offset = 0;
    cJSON_ArrayForEach(item, root)
    {
        if (strcmp(item->string, "__metadata__") == 0) {
            continue;
        }
        struct weft_ckpt_tensor *tensor =
            head->tensor_count < WEFT_CKPT_ITEMS_MAX ? add_tensor(head) : NULL;
        if (tensor == NULL) {
            return weft_fail(error, WEFT_NOMEM, "no memory for the head");
        }
        if (!take_tensor(item, offset, tensor)) {
            return weft_fail(error, WEFT_DATA, "the head's tensor %u contradicts itself",
                             head->tensor_count - 1);
        }
        offset += tensor->bytes;
    }
    return WEFT_OK;
}

/* A tensor without a checksum is rejected: damage could not be detected. */
static weft_status take_hashes(struct weft_ckpt_head *head, struct weft_error *error)
{
    for (uint32_t i = 0; i < head->tensor_count; i++) {
        char name[sizeof(HASH_PREFIX) + WEFT_CKPT_NAME_BYTES];
        snprintf(name, sizeof(name), HASH_PREFIX "%s", head->tensors[i].name);
        const char *text = weft_ckpt_head_text(head, name);
        char *end;
        if (text == NULL || strlen(text) != 16) {
            return weft_fail(error, WEFT_DATA, "tensor %s has no checksum", head->tensors[i].name);
        }
        head->tensors[i].hash = strtoull(text, &end, 16);
        if (*end != '\0') {
            return weft_fail(error, WEFT_DATA, "tensor %s has no checksum", head->tensors[i].name);
        }
    }
    return WEFT_OK;
}

weft_status weft_ckpt_head_parse(const void *bytes, size_t count, uint64_t file_bytes,
                                 struct weft_ckpt_head *head_p, size_t *used_p,
                                 struct weft_error *error)
{
    uint64_t length;
    if (count < sizeof(length)) {
        return weft_fail(error, WEFT_DATA,
                         "it ends within its head: it is truncated, or not a file of weft");
    }
    memcpy(&length, bytes, sizeof(length));
    if (length > WEFT_CKPT_HEAD_BYTES_MAX || length > count - sizeof(length)) {
        return weft_fail(error, WEFT_DATA,
                         "it ends within its head: it is truncated, or not a file of weft");
    }
    cJSON *root = cJSON_ParseWithLength((const char *)bytes + sizeof(length), length);
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return weft_fail(error, WEFT_DATA, "its head is not a JSON object");
    }
    struct weft_ckpt_head head = {.tensors = NULL};
    weft_status status = take_items(root, &head, error);
    cJSON_Delete(root);
    if (status == WEFT_OK) {
        status = take_hashes(&head, error);
    }
    uint64_t total = sizeof(length) + length + weft_ckpt_head_data_bytes(&head);
    if (status == WEFT_OK && total != file_bytes) {
        status =
            weft_fail(error, WEFT_DATA, "it has %" PRIu64 " bytes; according to its head %" PRIu64,
                      file_bytes, total);
    }
    if (status != WEFT_OK) {
        weft_ckpt_head_fini(&head);
        return status;
    }
    *head_p = head;
    *used_p = sizeof(length) + length;
    return WEFT_OK;
}
