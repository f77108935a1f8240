/* Helpers shared by the users of libbpf: open an embedded object, and keep libbpf's messages on
 * failure. */
#ifndef WEFT_LAB_BPF_LOAD_H
#define WEFT_LAB_BPF_LOAD_H

#include "base/error.h"

#include <bpf/libbpf.h>
#include <stddef.h>

/* Keeps libbpf's warnings instead of printing them, until fini. One at a time. */
struct weft_bpf_words {
    libbpf_print_fn_t previous;
};
void weft_bpf_words_init(struct weft_bpf_words *words);
void weft_bpf_words_fini(struct weft_bpf_words *words);

/* Format "WHAT: reason". Reasons: no permission, or no BPF in this kernel; a kernel without BTF, or
 * older than major.minor, which WHAT requires (all WEFT_UNSUPPORTED); else errno_code (positive)
 * and libbpf's last warning (WEFT_IO). */
weft_status weft_bpf_fail(struct weft_error *error, int errno_code, const char *what, int major,
                          int minor);

/* Open an object from memory, without loading it.
 *
 * Owns:    borrows bytes until the object is loaded; gives the object (bpf_object__close).
 * Errors:  WEFT_IO. */
[[nodiscard]] weft_status weft_bpf_open(const void *bytes, size_t count, const char *name,
                                        struct bpf_object **object_p, struct weft_error *error);

#endif
