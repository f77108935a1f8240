/* A spool of arbitrary bytes, converted to lines of JSON: every byte is in a valid block or
 * skipped, and every line is an object. The hash of each block that has a head and enough bytes is
 * made right, so that its records are reached. */
#define _GNU_SOURCE
#include "base/assert.h"
#include "obs/record_spool.h"
#include "obs/records_db.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD_BYTES = sizeof(struct weft_spool_head), UNIT_BYTES = WEFT_RPC_RECORD_UNIT_BYTES };

static char folder[] = "/tmp/weft-fuzz-XXXXXX";
static char lines_path[sizeof(folder) + 16];

static void remove_folder(void)
{
    (void)unlink(lines_path);
    (void)rmdir(folder);
}

static void prepare(void)
{
    if (lines_path[0] == '\0') {
        WEFT_ASSERT(mkdtemp(folder) != NULL);
        snprintf(lines_path, sizeof(lines_path), "%s/lines.jsonl", folder);
        (void)atexit(remove_folder);
    }
}

/* Returns whether there was a head. Owns: bytes (size,), aligned as units. */
static bool mend(uint8_t *bytes, size_t size, size_t at)
{
    struct weft_spool_head head;
    memcpy(&head, bytes + at, sizeof(head));
    if (memcmp(head.magic, WEFT_SPOOL_MAGIC, sizeof(head.magic)) != 0 ||
        head.units > (size - at - HEAD_BYTES) / UNIT_BYTES) {
        return false;
    }
    head.hash = weft_spool_hash(
        &head, (const struct weft_rpc_record_unit *)(void *)(bytes + at + HEAD_BYTES));
    memcpy(bytes + at, &head, sizeof(head));
    return true;
}

/* Backwards: the hash of a block covers those inside it. */
static int make_file(const uint8_t *data, size_t size)
{
    int fd = memfd_create("spool", MFD_CLOEXEC);
    uint8_t *bytes = aligned_alloc(64, (size + 64) / 64 * 64);
    WEFT_ASSERT(fd >= 0 && bytes != NULL);
    memcpy(bytes, data, size);
    for (size_t at = size / UNIT_BYTES * UNIT_BYTES + UNIT_BYTES; at > 0;) {
        at -= UNIT_BYTES;
        if (at + HEAD_BYTES <= size) {
            (void)mend(bytes, size, at);
        }
    }
    WEFT_ASSERT(write(fd, bytes, size) == (ssize_t)size);
    free(bytes);
    return fd;
}

static void read_blocks(const char *path, size_t size)
{
    struct weft_spool_reader reader;
    uint64_t used = 0;
    WEFT_ASSERT(weft_spool_reader_open(path, &reader) == WEFT_OK);
    while (weft_spool_reader_next(&reader)) {
        used += HEAD_BYTES + (uint64_t)reader.head.units * UNIT_BYTES;
    }
    WEFT_ASSERT(used + reader.skipped == size);
    weft_spool_reader_close(&reader);
}

static void check_lines(void)
{
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen(lines_path, "r");
    WEFT_ASSERT(file != NULL);
    for (ssize_t n; (n = getline(&line, &room, file)) > 0;) {
        WEFT_ASSERT(n >= 3 && line[0] == '{' && line[n - 2] == '}' && line[n - 1] == '\n');
    }
    free(line);
    (void)fclose(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[32];
    const char *const inputs[] = {path};
    struct weft_records_sum sum;
    struct weft_error error = {.text = ""};
    prepare();
    const int fd = make_file(data, size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_blocks(path, size);
    (void)unlink(lines_path);
    weft_status status = weft_records_make(inputs, 1, lines_path, false, NULL, &sum, &error);
    WEFT_ASSERT(status == WEFT_OK ? sum.bytes_skipped <= size : error.text[0] != '\0');
    check_lines();
    (void)close(fd);
    return 0;
}
