/* Round times of all repetitions of one transport on one network, out of their --per-round files. */
#include "cli/perf/compare.h"

#include <stdlib.h>
#include <string.h>

static bool append(struct weft_compare_times *times, double value)
{
    if (times->count == times->room) {
        size_t room = times->room * 2 + 256;
        double *values = realloc(times->values, room * sizeof(*values));
        if (values == NULL) {
            return false;
        }
        times->values = values;
        times->room = room;
    }
    times->values[times->count++] = value;
    return true;
}

static bool ends_with(const char *line, const char *word)
{
    size_t line_bytes = strcspn(line, "\n");
    size_t word_bytes = strlen(word);
    return line_bytes >= word_bytes &&
           strncmp(line + line_bytes - word_bytes, word, word_bytes) == 0;
}

/* A file that does not say which rounds were undisturbed has none. */
static bool read_file(const char *path, bool undisturbed, struct weft_compare_times *times)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    bool says = false;
    while (good && file != NULL && getline(&line, &room, file) >= 0) {
        double value;
        says = says || ends_with(line, " undisturbed");
        if ((!undisturbed || (says && ends_with(line, " 1"))) &&
            sscanf(line, "%*u %lf", &value) == 1) {
            good = append(times, value);
        }
    }
    free(line);
    if (file != NULL) {
        (void)fclose(file);
    }
    return good;
}

bool weft_compare_times_read(const struct weft_compare *compare, uint32_t network,
                             uint32_t transport, bool undisturbed,
                             struct weft_compare_times *times_p)
{
    *times_p = (struct weft_compare_times){0};
    bool good = true;
    for (uint32_t r = 0; good && r < compare->repetitions; r++) {
        char path[WEFT_COMPARE_PATH_BYTES];
        weft_compare_path(compare, network, transport, r, "rounds", path);
        good = read_file(path, undisturbed, times_p);
    }
    (void)weft_perf_median(times_p->values, times_p->count); /* sorts */
    return good;
}
