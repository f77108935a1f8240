/* Files of a checkpoint, written atomically. A writer fills the tensors of one file, each from
 * front to back, in any order among the tensors. A reader checks every byte.
 *
 * A file is written under a temporary name, synchronised, then renamed. Its directory is
 * synchronised by the caller that commits (ckpt/log.h). The caller chooses the names. After any
 * failure before the rename the temporary file is removed.
 *
 * Checksums are XXH3 (64 bits) of each tensor, stored in the head, and of the head, stored in the
 * manifest. XXH3 rather than CRC-32: it does not cost the writer a core, and 64 bits are enough for
 * files of any size.
 *
 * Thread:  one thread per writer or reader.
 */
#ifndef WEFT_CKPT_DISK_H
#define WEFT_CKPT_DISK_H

#include "ckpt/head.h"

/* Suffix of the name of an unfinished file. */
#define WEFT_CKPT_TEMPORARY ".tmp"

enum { WEFT_CKPT_PATH_BYTES = 4096, WEFT_CKPT_FILE_BYTES = 64 };

/* A file, as described by a manifest. */
struct weft_ckpt_file {
    char name[WEFT_CKPT_FILE_BYTES]; /* within the directory */
    uint64_t bytes;
    uint64_t head_hash;
};

struct weft_ckpt_writer;

/* Owns:    takes *head, also after an error. gives *writer_p, to be ended with one of the two
 *          below.
 * Errors:  WEFT_IO  error->text names the call and the reason. WEFT_NOMEM. */
weft_status weft_ckpt_writer_open(const char *directory, const char *name,
                                  struct weft_ckpt_head *head, struct weft_ckpt_writer **writer_p,
                                  struct weft_error *error);

/* Append bytes to a tensor, numbered as in the head.
 * Errors:  WEFT_IO, for instance because the disk is full. Writing more bytes than the tensor
 *          has is a programmer's error. */
weft_status weft_ckpt_writer_put(struct weft_ckpt_writer *writer, uint32_t tensor,
                                 const void *bytes, size_t count, struct weft_error *error);

/* Finish the file; every tensor must be complete. Frees the writer in each case.
 * Errors:  WEFT_IO: the file was not created. */
weft_status weft_ckpt_writer_close(struct weft_ckpt_writer *writer, struct weft_ckpt_file *file_p,
                                   struct weft_error *error);

/* NULL is allowed. */
void weft_ckpt_writer_abandon(struct weft_ckpt_writer *writer);

/* Create a small file and sync its content; the name must not exist yet. The name itself is not
 * synced (see weft_ckpt_sync_directory). Errors: WEFT_IO: the file was not created, unless it
 * existed before. */
weft_status weft_ckpt_write_new(const char *path, const void *bytes, size_t count,
                                struct weft_error *error);

/* Read a file into memory, to be freed by the caller; of a longer file only the first bytes_max
 * bytes.
 * Errors:  WEFT_NOTFOUND  no such file. WEFT_IO, WEFT_NOMEM. errno has the reason. */
weft_status weft_ckpt_read_whole(const char *path, size_t bytes_max, char **bytes_p,
                                 size_t *count_p, struct weft_error *error);

/* Make renames in the directory durable. Errors: WEFT_IO. */
weft_status weft_ckpt_sync_directory(const char *directory, struct weft_error *error);

/* Create a directory, unless it exists, and make its name durable, unless its parent may not be
 * read. Errors: WEFT_IO. */
weft_status weft_ckpt_make_directory(const char *directory, struct weft_error *error);

struct weft_ckpt_reader;

/* Errors:  WEFT_NOTFOUND  no such file. WEFT_DATA  it is not the file described by `file`, or is
 *          damaged: error->text names the place. WEFT_IO, WEFT_NOMEM. */
weft_status weft_ckpt_reader_open(const char *directory, const struct weft_ckpt_file *file,
                                  struct weft_ckpt_reader **reader_p, struct weft_error *error);

/* NULL is allowed. */
void weft_ckpt_reader_close(struct weft_ckpt_reader *reader);

const struct weft_ckpt_head *weft_ckpt_reader_head(const struct weft_ckpt_reader *reader);

/* Read the whole file and compare the checksums. Errors: as open. */
weft_status weft_ckpt_reader_verify(struct weft_ckpt_reader *reader, struct weft_error *error);

/* Read bytes [at, at + count) of a tensor; they must be within it. Errors: as open. */
weft_status weft_ckpt_reader_get(struct weft_ckpt_reader *reader,
                                 const struct weft_ckpt_tensor *tensor, uint64_t at, void *out,
                                 size_t count, struct weft_error *error);

#endif
