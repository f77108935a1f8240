/* Runs a fuzz target over a folder of saved inputs, without libFuzzer: the regression test.
 *
 * Each input is given whole, then cut short at every length (at 512 lengths, evenly spread, when it
 * is longer): reading past the end of a truncated packet is the most common error of a decoder.
 * Every run gets a heap copy of exact size, so that AddressSanitizer detects a read of one byte too
 * many. The input's name is printed before it runs: after a crash it is the last line.
 *
 * Not a fuzzer: it generates no inputs. `make fuzz` does. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUTS_MAX = 512 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* Optional, as in libFuzzer. */
__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

[[gnu::noreturn]] static void die(const char *what, const char *name)
{
    printf("Bail out! %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static uint8_t *read_file(const char *path, size_t *size_p)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        die("cannot open", path);
    }
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size > 0 ? (size_t)size : 1);
    if (size < 0 || data == NULL || fread(data, 1, (size_t)size, file) != (size_t)size) {
        die("cannot read", path);
    }
    fclose(file);
    *size_p = (size_t)size;
    return data;
}

static void run_prefix(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        die("no memory for", "an input");
    }
    memcpy(copy, data, size);
    /* The pointer is valid even if size is 0; then no byte may be read. */
    (void)LLVMFuzzerTestOneInput(size > 0 ? copy : copy + 1, size);
    free(copy);
}

/* Returns how often the target was run. */
static size_t run_file(const char *path)
{
    size_t size;
    uint8_t *data = read_file(path, &size);
    size_t step = size / CUTS_MAX + 1;
    size_t runs = 1;
    run_prefix(data, size);
    for (size_t cut = 0; cut < size; cut += step) {
        run_prefix(data, cut);
        runs++;
    }
    free(data);
    return runs;
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_folder(const char *folder, size_t *inputs_p, size_t *runs_p)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_input, alphasort);
    if (count < 0) {
        die("cannot read folder", folder);
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name);
        printf("# %s\n", path);
        fflush(stdout);
        *runs_p += run_file(path);
        *inputs_p += 1;
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    if (LLVMFuzzerInitialize != NULL) {
        (void)LLVMFuzzerInitialize(&argc, &argv);
    }
    printf("1..%d\n", argc - 1);
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        size_t inputs = 0, runs = 0;
        run_folder(argv[i], &inputs, &runs);
        /* An empty corpus tests nothing, and must not look like a pass. */
        failed |= inputs == 0;
        printf("%s %d - %zu inputs, %zu runs with the shortened ones\n",
               inputs > 0 ? "ok" : "not ok", i, inputs, runs);
    }
    return argc < 2 || failed;
}
