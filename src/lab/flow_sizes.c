/* Points of published flow-size distributions, with their sources:
 *
 *   websearch   a production cluster's query, update and background traffic: Alizadeh et al.,
 *               "Data Center TCP (DCTCP)", SIGCOMM 2010, figure 4. Mean 1.71 MB.
 *   datamining  a data-mining cluster: Greenberg et al., "VL2", SIGCOMM 2009, figure 2. Four in
 *               five flows are below 10 KB, and 87 % of the bytes are in flows above 100 MB:
 *               the sample mean of a run of a few minutes does not converge to the mean of
 *               12.7 MB.
 *   hadoop      Facebook's Hadoop clusters: Roy et al., "Inside the Social Network's (Datacenter)
 *               Network", SIGCOMM 2015, figure 6. Mean 120 KB.
 *
 * The points are those that later papers (pFabric, HPCC, and their traffic generators) read from
 * these figures. They are facts and were typed in again, not copied from code.
 */
#include "lab/flow_sizes.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char websearch[] = "0 0\n10000 0.15\n20000 0.2\n30000 0.3\n50000 0.4\n80000 0.53\n"
                                "200000 0.6\n1000000 0.7\n2000000 0.8\n5000000 0.9\n"
                                "10000000 0.97\n30000000 1\n";
static const char datamining[] = "0 0\n180 0.1\n216 0.2\n560 0.3\n900 0.4\n1100 0.5\n1870 0.6\n"
                                 "3160 0.7\n10000 0.8\n400000 0.9\n3160000 0.95\n"
                                 "100000000 0.98\n1000000000 1\n";
static const char hadoop[] = "0 0\n100 1\n200 2\n300 5\n350 15\n400 20\n500 30\n600 40\n700 50\n"
                             "1000 60\n2000 67\n7000 70\n30000 72\n50000 82\n80000 87\n"
                             "120000 90\n300000 95\n1000000 97.5\n2000000 99\n10000000 100\n";

const char *const weft_flow_sizes_names[] = {"websearch", "datamining", "hadoop", NULL};
static const char *const texts[] = {websearch, datamining, hadoop};

/* Files are small; the largest published one has 20 KB. */
enum { FILE_BYTES_MAX = 1 << 20 };

/* ---- parsing --------------------------------------------------------------------------------- */

struct reader {
    const char *name;
    uint32_t line;
    bool first; /* only comments so far */
    struct weft_flow_sizes *sizes;
    struct weft_error *error;
};

static weft_status bad_line(const struct reader *r, const char *what)
{
    return weft_fail(r->error, WEFT_DATA, "%s, line %u: %s", r->name, r->line, what);
}

/* Parse the numbers of a line, at most 3; -1 if there is other text. */
static int numbers_of(const char *line, size_t length, double out[3])
{
    char text[128];
    if (length >= sizeof(text)) {
        return -1;
    }
    memcpy(text, line, length);
    text[length] = '\0';
    text[strcspn(text, "#")] = '\0';
    int count = 0;
    for (char *at = text;;) {
        while (isspace((unsigned char)*at)) {
            at++;
        }
        if (*at == '\0' || count == 3) {
            return count;
        }
        char *end;
        out[count++] = strtod(at, &end);
        if (end == at || !(isspace((unsigned char)*end) || *end == '\0')) {
            return -1;
        }
        at = end;
    }
}

static weft_status point_add(struct reader *r, double bytes, double share)
{
    struct weft_flow_sizes *sizes = r->sizes;
    const struct weft_flow_point *last = sizes->count > 0 ? &sizes->points[sizes->count - 1] : NULL;
    if (!(bytes >= 0 && bytes <= WEFT_FLOW_SIZES_BYTES_MAX)) {
        return bad_line(r, "a size is 0 to 10^12 bytes");
    }
    if (!(share >= 0 && share <= 100)) {
        return bad_line(r, "a probability is 0 to 1, or 0 to 100 in percent");
    }
    if (last != NULL && (bytes < last->bytes || share < last->share)) {
        return bad_line(r, "sizes and probabilities must not fall from line to line");
    }
    if (sizes->count == WEFT_FLOW_SIZES_POINTS_MAX) {
        return bad_line(r, "more than 4096 points");
    }
    sizes->points[sizes->count++] = (struct weft_flow_point){bytes, share};
    return WEFT_OK;
}

static weft_status line_read(struct reader *r, const char *line, size_t length)
{
    double numbers[3];
    int count = numbers_of(line, length, numbers);
    if (count == 0) {
        return WEFT_OK;
    }
    bool first = r->first;
    r->first = false;
    if (count == 1 && first) {
        return WEFT_OK; /* some published files begin with the mean; it is ignored */
    }
    return count == 2 ? point_add(r, numbers[0], numbers[1])
                      : bad_line(r, "want two numbers: size in bytes, probability");
}

/* The last probability, 1 or 100, determines the unit. Then compute the mean: the mean of each
 * linear segment is its midpoint. */
static weft_status finish(const struct reader *r)
{
    struct weft_flow_sizes *sizes = r->sizes;
    double top = sizes->count > 0 ? sizes->points[sizes->count - 1].share : 0;
    bool percent = fabs(top - 100) < 1e-6;
    if (sizes->count == 0) {
        return weft_fail(r->error, WEFT_DATA, "%s: no points in it", r->name);
    }
    if (!percent && !(fabs(top - 1) < 1e-6)) {
        return weft_fail(r->error, WEFT_DATA,
                         "%s, line %u: the last probability is %g; it must be 1, or 100 in "
                         "percent",
                         r->name, r->line, top);
    }
    double below = 0;
    sizes->mean_bytes = 0;
    for (uint32_t i = 0; i < sizes->count; i++) {
        struct weft_flow_point *point = &sizes->points[i];
        double from = i > 0 ? sizes->points[i - 1].bytes : point->bytes;
        point->share = i == sizes->count - 1 ? 1 : point->share / top;
        sizes->mean_bytes += (point->share - below) * (from + point->bytes) / 2;
        below = point->share;
    }
    if (!(sizes->mean_bytes > 0)) {
        return weft_fail(r->error, WEFT_DATA, "%s: all flows have size 0", r->name);
    }
    return WEFT_OK;
}

weft_status weft_flow_sizes_parse(const char *name, const char *text,
                                  struct weft_flow_sizes *sizes_p, struct weft_error *error)
{
    struct reader r = {.name = name, .first = true, .sizes = sizes_p, .error = error};
    sizes_p->count = 0;
    for (const char *at = text; *at != '\0';) {
        size_t length = strcspn(at, "\n");
        r.line++;
        weft_status status = line_read(&r, at, length);
        if (status != WEFT_OK) {
            return status;
        }
        at += length + (at[length] == '\n');
    }
    return finish(&r);
}

static weft_status file_read(const char *path, struct weft_flow_sizes *sizes_p,
                             struct weft_error *error)
{
    char *text = calloc(1, FILE_BYTES_MAX + 1);
    if (text == NULL) {
        return weft_fail(error, WEFT_NOMEM, "%s: no memory", path);
    }
    FILE *file = fopen(path, "re");
    size_t bytes = file != NULL ? fread(text, 1, FILE_BYTES_MAX + 1, file) : 0;
    weft_status status = WEFT_OK;
    if (file == NULL || ferror(file)) {
        status = weft_fail(error, WEFT_IO, "%s: %s", path, strerror(errno));
    } else if (bytes > FILE_BYTES_MAX || memchr(text, '\0', bytes) != NULL) {
        status = weft_fail(error, WEFT_DATA, "%s: not a list of flow sizes", path);
    } else {
        status = weft_flow_sizes_parse(path, text, sizes_p, error);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(text);
    return status;
}

/* The text of a published distribution, or NULL. */
static const char *published(const char *name)
{
    for (size_t i = 0; weft_flow_sizes_names[i] != NULL; i++) {
        if (strcmp(name, weft_flow_sizes_names[i]) == 0) {
            return texts[i];
        }
    }
    return NULL;
}

bool weft_flow_sizes_published(const char *name)
{
    return published(name) != NULL;
}

weft_status weft_flow_sizes_load(const char *name_or_path, struct weft_flow_sizes *sizes_p,
                                 struct weft_error *error)
{
    const char *text = published(name_or_path);
    if (text != NULL) {
        return weft_flow_sizes_parse(name_or_path, text, sizes_p, error);
    }
    struct stat file;
    if (stat(name_or_path, &file) != 0 && errno == ENOENT) {
        return weft_fail(error, WEFT_NOTFOUND,
                         "no flow sizes named %s: websearch, datamining, hadoop, or a file",
                         name_or_path);
    }
    return file_read(name_or_path, sizes_p, error);
}

/* ---- sampling -------------------------------------------------------------------------------- */

uint64_t weft_flow_sizes_at(const struct weft_flow_sizes *sizes, double u)
{
    const struct weft_flow_point *points = sizes->points;
    uint32_t low = 0;
    uint32_t high = sizes->count - 1;
    /* The first point whose share is above u; the last share is 1. */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (points[middle].share > u) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    double bytes = points[low].bytes;
    if (low > 0) {
        const struct weft_flow_point *from = &points[low - 1];
        double width = points[low].share - from->share;
        bytes = from->bytes + (bytes - from->bytes) * (u - from->share) / width;
    }
    return bytes < 1 ? 1 : (uint64_t)(bytes + 0.5);
}

uint64_t weft_flow_sizes_draw(const struct weft_flow_sizes *sizes, struct weft_prng *prng)
{
    return weft_flow_sizes_at(sizes, (double)(weft_prng_u64(prng) >> 11) * 0x1p-53);
}
