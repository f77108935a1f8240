/* Regression test of byte formats: packets, checkpoints, journals and traces are made from fixed
 * inputs and compared with tests/golden/NAME.hex. It detects changed bytes, not wrong ones: the
 * meaning of each format is tested elsewhere (test_wire_golden.c, test_ckpt_files.c, ...).
 *
 *     golden_begin("wire"); golden_item for each item; golden_end: compares, and fails with the
 *     name of the item and the offset of the first byte that differs.
 *
 * A golden file is text. Each item begins with "item BYTES NAME"; its bytes follow, each line with
 * the offset of its first: 16 bytes in hexadecimal digits or a line of text. Lines of zeros are
 * left out.
 *
 * WEFT_GOLDEN_RECORD=1 writes the files instead, and skips the tests. */
#ifndef WEFT_TESTS_GOLDEN_H
#define WEFT_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

struct golden;

struct golden *golden_begin(const char *name);

/* Add a copy of the bytes. The name is a format string; the resulting names must be unique. */
[[gnu::format(printf, 4, 5)]] void golden_item(struct golden *g, const void *bytes, size_t count,
                                               const char *format, ...);
/* Add the bytes of a file. */
[[gnu::format(printf, 3, 4)]] void golden_file(struct golden *g, const char *path,
                                               const char *format, ...);
/* Add all files of a folder, recursively, in the order of their names. */
void golden_folder(struct golden *g, const char *folder);

/* Frees g in each case. */
void golden_end(struct golden *g);

/* Create and remove a temporary folder. */
void golden_folder_make(char path_p[64]);
void golden_folder_remove(const char *path);

/* The tests, each in golden_NAME.c. */
void golden_agg(void **state);
void golden_wire(void **state);
void golden_handshake(void **state);
void golden_rpc(void **state);
void golden_messages(void **state);
void golden_checkpoint(void **state);
void golden_journal(void **state);
void golden_members(void **state);
void golden_trace(void **state);
void golden_records(void **state);
void golden_pcap(void **state);

#endif
