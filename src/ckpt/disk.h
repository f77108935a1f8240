/* Files of a checkpoint: written whole or not at all. A writer fills the tensors of one file, each
 * front to back, in any order among them; a reader checks every byte.
 *
 * A file is written under a temporary name, synchronised, then renamed; its directory is
 * synchronised by the one who commits (ckpt/log.h). Names are the caller's alone. Whatever goes wrong before, the temporary
 * file is removed.
 *
 * Checksums are XXH3 (64 bits) of each tensor, kept in the head, and of the head, kept in the
 * manifest. XXH3 and not CRC-32: it does not cost the writer a core, and 64 bits are enough for
 * files of any size.
 *
 * Thread:  one thread per writer or reader.
 */
#ifndef WEFT_CKPT_DISK_H
#define WEFT_CKPT_DISK_H

#include "ckpt/head.h"

/* How the name of a file that is not finished ends. */
#define WEFT_CKPT_TEMPORARY ".tmp"

enum { WEFT_CKPT_PATH_BYTES = 4096, WEFT_CKPT_FILE_BYTES = 64 };

/* What a manifest says of a file. */
struct weft_ckpt_file {
    char name[WEFT_CKPT_FILE_BYTES]; /* within the directory */
    uint64_t bytes;
    uint64_t head_hash;
};

struct weft_ckpt_writer;

/* Owns:    takes *head, also after an error. gives *writer_p, to be ended with one of the two below.
 * Errors:  WEFT_IO  error->text names call and reason. WEFT_NOMEM. */
weft_status weft_ckpt_writer_open(const char *directory, const char *name,
                                  struct weft_ckpt_head *head, struct weft_ckpt_writer **writer_p,
                                  struct weft_error *error);

/* The next bytes of a tensor, numbered as in the head.
 * Errors:  WEFT_IO, for instance because the disk is full. More than the tensor's is a programmer's
 *          error. */
weft_status weft_ckpt_writer_put(struct weft_ckpt_writer *writer, uint32_t tensor,
                                 const void *bytes, size_t count, struct weft_error *error);

/* Every tensor is complete: make it a file. Frees the writer in each case.
 * Errors:  WEFT_IO: there is no such file then. */
weft_status weft_ckpt_writer_close(struct weft_ckpt_writer *writer, struct weft_ckpt_file *file_p,
                                   struct weft_error *error);

/* NULL is fine. */
void weft_ckpt_writer_abandon(struct weft_ckpt_writer *writer);

/* A small file of a name that is not there yet, at once, on the disk. Its name is not (see below).
 * Errors: WEFT_IO: there is no such file then, unless it was there before. */
weft_status weft_ckpt_write_new(const char *path, const void *bytes, size_t count,
                                struct weft_error *error);

/* The bytes of a file, to be freed; of a longer one the first bytes_max.
 * Errors:  WEFT_NOTFOUND  there is none. WEFT_IO, WEFT_NOMEM. errno says why. */
weft_status weft_ckpt_read_whole(const char *path, size_t bytes_max, char **bytes_p,
                                 size_t *count_p, struct weft_error *error);

/* Make renames in the directory last. Errors: WEFT_IO. */
weft_status weft_ckpt_sync_directory(const char *directory, struct weft_error *error);

struct weft_ckpt_reader;

/* Errors:  WEFT_NOTFOUND  there is no such file. WEFT_DATA  it is not the file that `file` names, or
 *          is damaged: error->text says where. WEFT_IO, WEFT_NOMEM. */
weft_status weft_ckpt_reader_open(const char *directory, const struct weft_ckpt_file *file,
                                  struct weft_ckpt_reader **reader_p, struct weft_error *error);

/* NULL is fine. */
void weft_ckpt_reader_close(struct weft_ckpt_reader *reader);

const struct weft_ckpt_head *weft_ckpt_reader_head(const struct weft_ckpt_reader *reader);

/* Read all of it and compare the checksums. Errors: as open. */
weft_status weft_ckpt_reader_verify(struct weft_ckpt_reader *reader, struct weft_error *error);

/* Bytes [at, at + count) of a tensor, which has them. Errors: as open. */
weft_status weft_ckpt_reader_get(struct weft_ckpt_reader *reader,
                                 const struct weft_ckpt_tensor *tensor, uint64_t at, void *out,
                                 size_t count, struct weft_error *error);

#endif
