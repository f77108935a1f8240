#define _GNU_SOURCE
#include "golden.h"

#include "base/assert.h"
#include "base/units.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <ctype.h>
#include <dirent.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ITEMS_MAX = 256,
    NAME_BYTES = 128,
    ROW_BYTES = 16, /* bytes of an item per line */
    TEXT_BYTES_MIN = 8,
    TEXT_BYTES_MAX = 72,
    TOLD_MAX = 8, /* differences that are reported individually */
    ITEM_BYTES_MAX = 8 << 20,
};

struct item {
    char name[NAME_BYTES];
    uint8_t *bytes;
    size_t count;
};

struct list {
    struct item items[ITEMS_MAX];
    uint32_t count;
};

struct golden {
    char path[512];
    struct list made;
};

static struct item *list_find(struct list *list, const char *name)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

/* Append zeroed bytes for the caller to fill. */
static struct item *list_add(struct list *list, const char *name, size_t count)
{
    WEFT_ASSERT(list->count < ITEMS_MAX && list_find(list, name) == NULL);
    struct item *item = &list->items[list->count++];
    (void)snprintf(item->name, sizeof(item->name), "%s", name);
    item->count = count;
    item->bytes = calloc(count + 1, 1);
    WEFT_ASSERT(item->bytes != NULL);
    return item;
}

static void list_fini(struct list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->items[i].bytes);
    }
}

struct golden *golden_begin(const char *name)
{
    const char *root = getenv("WEFT_SOURCE_ROOT");
    struct golden *g = calloc(1, sizeof(*g));
    WEFT_ASSERT(g != NULL);
    (void)snprintf(g->path, sizeof(g->path), "%s/tests/golden/%s.hex", root != NULL ? root : ".",
                   name);
    return g;
}

static void add(struct golden *g, const void *bytes, size_t count, const char *format, va_list list)
{
    char name[NAME_BYTES];
    (void)vsnprintf(name, sizeof(name), format, list);
    struct item *item = list_add(&g->made, name, count);
    if (count > 0) {
        memcpy(item->bytes, bytes, count);
    }
}

void golden_item(struct golden *g, const void *bytes, size_t count, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    add(g, bytes, count, format, list);
    va_end(list);
}

void golden_file(struct golden *g, const char *path, const char *format, ...)
{
    uint8_t *bytes = malloc(ITEM_BYTES_MAX);
    FILE *file = fopen(path, "rbe");
    WEFT_ASSERT(bytes != NULL && file != NULL);
    size_t count = fread(bytes, 1, ITEM_BYTES_MAX, file);
    (void)fclose(file);
    va_list list;
    va_start(list, format);
    add(g, bytes, count, format, list);
    va_end(list);
    free(bytes);
}

static void folder_add(struct golden *g, const char *folder, const char *below)
{
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    WEFT_ASSERT(count >= 0);
    for (int i = 0; i < count; i++) {
        char path[512], name[512];
        struct stat info;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]->d_name);
        (void)snprintf(name, sizeof(name), "%s%s", below, names[i]->d_name);
        WEFT_ASSERT(stat(path, &info) == 0);
        if (S_ISREG(info.st_mode)) {
            golden_file(g, path, "%s", name);
        } else if (names[i]->d_name[0] != '.') {
            (void)strncat(name, "/", sizeof(name) - strlen(name) - 1);
            folder_add(g, path, name);
        }
        free(names[i]);
    }
    free(names);
}

void golden_folder(struct golden *g, const char *folder)
{
    folder_add(g, folder, "");
}

void golden_folder_make(char path_p[64])
{
    (void)snprintf(path_p, 64, "%s/weft-golden-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    WEFT_ASSERT(mkdtemp(path_p) != NULL);
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info, (void)type, (void)at;
    return remove(path);
}

void golden_folder_remove(const char *path)
{
    (void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* Number of bytes from here that form a line of text, including its newline. 0 = not text. */
static size_t text_bytes(const struct item *item, size_t at)
{
    size_t count = 0;
    while (count < TEXT_BYTES_MAX && at + count < item->count && isprint(item->bytes[at + count])) {
        count++;
    }
    bool ends = at + count < item->count && item->bytes[at + count] == '\n';
    return count >= TEXT_BYTES_MIN ? count + ends : 0;
}

static bool is_zero(const struct item *item, size_t at)
{
    static const uint8_t zeros[ROW_BYTES];
    return memcmp(item->bytes + at, zeros, weft_min_u64(ROW_BYTES, item->count - at)) == 0;
}

/* Returns the number of bytes of the line. */
static size_t row_print(FILE *out, const struct item *item, size_t at)
{
    const uint8_t *bytes = item->bytes + at;
    size_t text = text_bytes(item, at), count = weft_min_u64(ROW_BYTES, item->count - at);
    if (text > 0) {
        bool ends = bytes[text - 1] == '\n';
        fprintf(out, "%08zx: \"%.*s\"%s\n", at, (int)(text - ends), (const char *)bytes,
                ends ? " 0a" : "");
        return text;
    }
    if (is_zero(item, at)) {
        return count;
    }
    fprintf(out, "%08zx:", at);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, i % 2 == 0 ? " %02x" : "%02x", bytes[i]);
    }
    (void)fputc('\n', out);
    return count;
}

static void record(const struct golden *g)
{
    FILE *out = fopen(g->path, "we");
    WEFT_ASSERT(out != NULL);
    fprintf(out, "# Written by tests/unit/golden.c, and compared by test_golden. A change of these "
                 "bytes needs a\n# new version of the format, and a line in CHANGELOG.md.\n");
    for (uint32_t i = 0; i < g->made.count; i++) {
        const struct item *item = &g->made.items[i];
        fprintf(out, "\nitem %zu %s\n", item->count, item->name);
        for (size_t at = 0; at < item->count;) {
            at += row_print(out, item, at);
        }
    }
    WEFT_ASSERT(fclose(out) == 0);
}

static bool text_read(const char *text, size_t room, uint8_t *bytes)
{
    const char *end = strrchr(text, '"');
    size_t count = end != NULL ? (size_t)(end - text) : room + 1;
    bool ends = count < room && strcmp(end, "\" 0a\n") == 0;
    if (count > room) {
        return false;
    }
    memcpy(bytes, text, count);
    if (ends) {
        bytes[count] = '\n';
    }
    return true;
}

/* "00000010: 0001 02" or "00000010: "text" 0a" into the item. False: another kind of line. */
static bool row_read(const char *line, struct item *item)
{
    size_t at, count = 0;
    int used;
    if (item == NULL || sscanf(line, "%8zx: %n", &at, &used) != 1 || at >= item->count) {
        return false;
    }
    const char *text = line + used;
    if (*text == '"') {
        return text_read(text + 1, item->count - at, item->bytes + at);
    }
    for (unsigned byte; sscanf(text, "%2x%n", &byte, &used) == 1; text += used) {
        if (at + count == item->count) {
            return false;
        }
        item->bytes[at + count++] = (uint8_t)byte;
    }
    return true;
}

static bool list_read(struct list *list, const char *path)
{
    char *line = NULL, name[NAME_BYTES];
    size_t room = 0, count;
    struct item *item = NULL;
    FILE *file = fopen(path, "re");
    bool good = file != NULL;
    while (good && getline(&line, &room, file) > 0) {
        if (line[0] == '#' || line[0] == '\n') {
            continue;
        }
        if (sscanf(line, "item %zu %127[^\n]", &count, name) == 2) {
            item = count <= ITEM_BYTES_MAX ? list_add(list, name, count) : NULL;
        } else {
            good = row_read(line, item);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(line);
    return good;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* Format the bytes around an offset, as digits and as text. */
static void shown_print(FILE *out, const char *whose, const struct item *item, size_t at)
{
    at = at / ROW_BYTES * ROW_BYTES;
    size_t count = weft_min_u64(ROW_BYTES, item->count - at);
    fprintf(out, "  %s %08zx:", whose, at);
    for (size_t i = 0; i < ROW_BYTES; i++) {
        (void)(i < count ? fprintf(out, " %02x", item->bytes[at + i]) : fprintf(out, "   "));
    }
    fprintf(out, "  ");
    for (size_t i = 0; i < count; i++) {
        (void)fputc(isprint(item->bytes[at + i]) ? item->bytes[at + i] : '.', out);
    }
    (void)fputc('\n', out);
}

/* Print one line per difference; returns their number. */
static uint32_t item_compare(const struct item *made, const struct item *kept, FILE *out)
{
    size_t at = 0, both = weft_min_u64(made->count, kept->count);
    while (at < both && made->bytes[at] == kept->bytes[at]) {
        at++;
    }
    if (at == made->count && at == kept->count) {
        return 0;
    }
    fprintf(out, "%s: differs from byte %zu (0x%zx) on; it has %zu bytes, the golden file %zu\n",
            made->name, at, at, made->count, kept->count);
    if (at < kept->count) {
        shown_print(out, "golden", kept, at);
    }
    if (at < made->count) {
        shown_print(out, "made  ", made, at);
    }
    return 1;
}

static uint32_t list_compare(struct list *made, struct list *kept, FILE *out)
{
    uint32_t differ = 0;
    for (uint32_t i = 0; i < made->count && differ < TOLD_MAX; i++) {
        const struct item *other = list_find(kept, made->items[i].name);
        if (other == NULL) {
            fprintf(out, "%s: not in the golden file\n", made->items[i].name);
            differ++;
        } else {
            differ += item_compare(&made->items[i], other, out);
        }
    }
    for (uint32_t i = 0; i < kept->count && differ < TOLD_MAX; i++) {
        if (list_find(made, kept->items[i].name) == NULL) {
            fprintf(out, "%s: in the golden file, and no longer made\n", kept->items[i].name);
            differ++;
        }
    }
    return differ;
}

/* Print the differences line by line, because cmocka truncates long messages. Returns their
 * number. */
static uint32_t compare(struct golden *g)
{
    char *text = NULL, *save = NULL;
    size_t count;
    uint32_t differ = 0;
    struct list *kept = calloc(1, sizeof(*kept));
    FILE *out = open_memstream(&text, &count);
    WEFT_ASSERT(out != NULL && kept != NULL);
    if (!list_read(kept, g->path)) {
        fprintf(out, "%s cannot be read to its end\n", g->path);
        differ++;
    }
    differ += list_compare(&g->made, kept, out);
    (void)fclose(out);
    for (char *at = text, *line; (line = strtok_r(at, "\n", &save)) != NULL; at = NULL) {
        print_error("%s\n", line);
    }
    free(text);
    list_fini(kept);
    free(kept);
    return differ;
}

void golden_end(struct golden *g)
{
    const char *wish = getenv("WEFT_GOLDEN_RECORD");
    bool records = wish != NULL && strcmp(wish, "1") == 0;
    char path[sizeof(g->path)];
    memcpy(path, g->path, sizeof(path));
    if (records) {
        record(g);
    }
    uint32_t differ = compare(g); /* also checks that the written file can be read */
    list_fini(&g->made);
    free(g);
    if (differ > 0) {
        fail_msg("%s: these bytes have changed. Other processes, and files on disks, have the old "
                 "ones: a change needs a new version of the format and a line in CHANGELOG.md. "
                 "After that, or if only the inputs of this test changed, record again: "
                 "WEFT_GOLDEN_RECORD=1 meson test -C build test_golden",
                 path);
    }
    if (records) {
        print_message("WEFT_GOLDEN_RECORD is set: %s is written, and nothing was tested\n", path);
        skip();
    }
}
