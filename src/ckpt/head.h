/* The head of a checkpoint's data file, in the safetensors format, which many tools read.
 *
 *     u64 little-endian: bytes of the JSON object that follows
 *     {"__metadata__": {"name": "text", ...},
 *      "tensor": {"dtype": "F32", "shape": [n, m], "data_offsets": [begin, end]}, ...}
 *     the tensors' bytes, little-endian, contiguous, in the order of the offsets
 *
 * Stricter than the format: tensors have at most two dimensions and one of the types below, there
 * are no gaps between them, and the metadata has a checksum of each tensor's bytes,
 * "xxh3_64.<tensor>".
 *
 * Not here: the file (ckpt/disk.h), and the list of tensors (node/checkpoint_data.h).
 *
 * Source: docs/CHECKPOINTS.md; github.com/huggingface/safetensors, "Format".
 */
#ifndef WEFT_CKPT_HEAD_H
#define WEFT_CKPT_HEAD_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    WEFT_CKPT_NAME_BYTES = 48,
    WEFT_CKPT_TEXT_BYTES = 512,
    WEFT_CKPT_HEAD_BYTES_MAX = 16 << 20,
    WEFT_CKPT_ITEMS_MAX = 65536, /* maximum number of tensors, or of metadata entries */
};

enum weft_ckpt_type { WEFT_CKPT_U32, WEFT_CKPT_U64, WEFT_CKPT_F32, WEFT_CKPT_U8 };

struct weft_ckpt_tensor {
    char name[WEFT_CKPT_NAME_BYTES];
    enum weft_ckpt_type type;
    uint32_t dims; /* 1 or 2 */
    uint64_t shape[2];
    uint64_t offset; /* from the end of the head */
    uint64_t bytes;
    uint64_t hash; /* XXH3, 64 bits */
};

struct weft_ckpt_metadata {
    char name[WEFT_CKPT_NAME_BYTES];
    char text[WEFT_CKPT_TEXT_BYTES];
};

struct weft_ckpt_head {
    struct weft_ckpt_tensor *tensors;
    uint32_t tensor_count;
    struct weft_ckpt_metadata *metadata;
    uint32_t metadata_count;
    bool is_short; /* out of memory: an added item is missing */
};

/* Both copy their arguments. Offsets follow from the order of the calls. A name with a character
 * that JSON would escape is a programmer's error. If memory is exhausted, head->is_short is set:
 * check it after the last call. */
void weft_ckpt_head_add(struct weft_ckpt_head *head, const char *name, enum weft_ckpt_type type,
                        uint64_t rows, uint64_t columns);
[[gnu::format(printf, 3, 4)]] void weft_ckpt_head_note(struct weft_ckpt_head *head,
                                                       const char *name, const char *format, ...);
void weft_ckpt_head_fini(struct weft_ckpt_head *head);

/* NULL if there is none. */
const struct weft_ckpt_tensor *weft_ckpt_head_find(const struct weft_ckpt_head *head,
                                                   const char *name);
const char *weft_ckpt_head_text(const struct weft_ckpt_head *head, const char *name);

uint64_t weft_ckpt_head_data_bytes(const struct weft_ckpt_head *head);

/* Encode the head, to be freed by the caller. Its size is a multiple of 8 and does not depend on
 * the hashes. Errors: WEFT_NOMEM. */
weft_status weft_ckpt_head_print(const struct weft_ckpt_head *head, char **bytes_p,
                                 size_t *count_p);

/* Parse a head. bytes (count,) begins with the length and may extend past the head; *used_p is the
 * offset of the data. file_bytes: size of the whole file, which must match the tensors exactly.
 * Errors:  WEFT_DATA  it violates the format; error->text names the place. WEFT_NOMEM. */
weft_status weft_ckpt_head_parse(const void *bytes, size_t count, uint64_t file_bytes,
                                 struct weft_ckpt_head *head_p, size_t *used_p,
                                 struct weft_error *error);

#endif
