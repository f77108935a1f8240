/* Heads of data files and manifests, byte by byte: what is taken must hold together. The first byte
 * chooses; a manifest gets a checksum that is right, or nothing would come past it. */
#include "ckpt/manifest.h"

#include "base/assert.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_head(const uint8_t *data, size_t size, uint64_t file_bytes)
{
    struct weft_ckpt_head head;
    struct weft_ckpt_error error = {.text = ""};
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

static void try_manifest(const uint8_t *data, size_t size)
{
    static const char end[] = "  \"xxh3_64\": \"0000000000000000\"\n}\n";
    size_t count = size + sizeof(end) - 1;
    char *text = malloc(count + 1);
    WEFT_ASSERT(text != NULL);
    memcpy(text, data, size);
    memcpy(text + size, end, sizeof(end));
    char digits[17];
    snprintf(digits, sizeof(digits), "%016llx", (unsigned long long)XXH3_64bits(text, count));
    memcpy(text + count - 20, digits, 16);
    struct weft_ckpt_manifest manifest;
    struct weft_ckpt_error error = {.text = ""};
    if (weft_ckpt_manifest_parse(text, count, &manifest, &error) == WEFT_OK) {
        WEFT_ASSERT(manifest.number > manifest.base && manifest.count >= 1 &&
                    manifest.first + manifest.count <= manifest.shards);
        for (uint32_t i = 0; i < manifest.count; i++) {
            WEFT_ASSERT(strchr(manifest.files[i].name, '/') == NULL);
        }
        weft_ckpt_manifest_fini(&manifest);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    if (data[0] % 2 == 0) {
        uint64_t length = 0;
        memcpy(&length, data + 1, size - 1 < 8 ? size - 1 : 8);
        try_head(data + 1, size - 1, size - 1 + data[0]);
        try_head(data + 1, size - 1, length + 8);
    } else {
        try_manifest(data + 1, size - 1);
    }
    return 0;
}
