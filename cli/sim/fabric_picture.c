/* Activity of the hosts of `weft sim fabric`, as a Gantt chart and as a Chrome trace. */
#include "cli/gnuplot.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/sim/fabric.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES = 32, ROWS_MAX = 200, LANES_MAX = 64 };

void weft_cli_fabric_take_span(void *arg, const struct weft_fabric_span *span)
{
    struct weft_cli_fabric_spans *spans = arg;
    if (spans->count == spans->room) {
        size_t room = spans->room * 2 + 1024;
        struct weft_fabric_span *longer = realloc(spans->spans, room * sizeof(*longer));
        if (longer == NULL) {
            spans->lost = true;
            return;
        }
        spans->spans = longer;
        spans->room = room;
    }
    spans->spans[spans->count++] = *span;
}

static uint32_t hosts_of(const struct weft_fabric_config *config)
{
    return config->workers + (config->div_max > 0 ? 2 : 1) * config->servers;
}

static void host_name(const struct weft_fabric_config *config, uint32_t host, char out[NAME_BYTES])
{
    uint32_t behind = host - config->workers;
    if (host < config->workers) {
        snprintf(out, NAME_BYTES, "worker %" PRIu32, host);
    } else {
        snprintf(out, NAME_BYTES, behind < config->servers ? "server %" PRIu32 : "replica %" PRIu32,
                 behind % config->servers);
    }
}

/* ---- Gantt ----------------------------------------------------------------------------------- */

static const char *const colours[WEFT_FABRIC_SPANS] = {
    "#9ecae1", "#d9d9d9", "#fdd0a2", "#31a354", "#756bb1",
    "#e7969c", "#3182bd", "#6baed6", "#de2d26",
};

static bool has_kind(const struct weft_cli_fabric_spans *spans, int kind)
{
    for (size_t i = 0; i < spans->count; i++) {
        if ((int)spans->spans[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* A box for each span: its center in time and row, half its length, half its height. Drops are
 * crosses. */
static void print_boxes(FILE *script, const struct weft_cli_fabric_spans *spans, int kind)
{
    fprintf(script, "$%s << EOD\n", weft_fabric_span_name((enum weft_fabric_span_kind)kind));
    for (size_t i = 0; i < spans->count; i++) {
        const struct weft_fabric_span *span = &spans->spans[i];
        if ((int)span->kind == kind) {
            double half = (double)(span->to_ns - span->from_ns) / 2e9;
            fprintf(script, "%.6f %" PRIu32 " %.6f 0.4\n", (double)span->from_ns / 1e9 + half,
                    span->host, half);
        }
    }
    fprintf(script, "EOD\n");
}

static void print_plot(FILE *script, const struct weft_cli_fabric_spans *spans)
{
    const char *before = "plot ";
    for (int kind = 0; kind < WEFT_FABRIC_SPANS; kind++) {
        const char *name = weft_fabric_span_name((enum weft_fabric_span_kind)kind);
        if (!has_kind(spans, kind)) {
            continue;
        }
        fprintf(script,
                kind == WEFT_FABRIC_SPAN_DROP
                    ? "%s$%s using 1:2 with points pointtype 2 linecolor rgb '%s' title '%s'"
                    : "%s$%s using 1:2:3:4 with boxxyerror fillcolor rgb '%s' title '%s'",
                before, name, colours[kind], name);
        before = ", ";
    }
    fprintf(script, "\n");
}

static void print_script(FILE *script, const char *png, const struct weft_fabric_config *config,
                         const struct weft_cli_fabric_spans *spans)
{
    uint32_t hosts = hosts_of(config);
    uint32_t every = 1 + (hosts - 1) / 50;
    fprintf(script,
            "set terminal pngcairo size 1400,%" PRIu32 " font 'sans,10'\nset output '%s'\n"
            "set title '%s, %s, compute %s, network %s, seed %" PRIu64 "' noenhanced\n"
            "set xlabel 'virtual time in s'\nset xrange [0:%g]\nset yrange [%" PRIu32 ".6:-0.6]\n"
            "set style fill solid 0.9 noborder\nset key outside bottom center horizontal\n"
            "set ytics (",
            200 + 16 * (hosts < ROWS_MAX ? hosts : ROWS_MAX), png,
            weft_fabric_policy_name(config->policy), weft_fabric_mode_name(config->mode),
            config->compute.name, config->network.name, config->seed,
            (double)config->duration_ns / 1e9, hosts - 1);
    for (uint32_t h = 0; h < hosts; h += every) {
        char name[NAME_BYTES];
        host_name(config, h, name);
        fprintf(script, "%s'%s' %" PRIu32, h > 0 ? ", " : "", name, h);
    }
    fprintf(script, ")\n");
    for (int kind = 0; kind < WEFT_FABRIC_SPANS; kind++) {
        if (has_kind(spans, kind)) {
            print_boxes(script, spans, kind);
        }
    }
    print_plot(script, spans);
}

/* Whether two paths are of one file, which need not exist. */
static bool is_one_file(const char *a, const char *b)
{
    struct weft_gnuplot_files x, y;
    struct stat in_x, in_y;
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    return strcmp(slash_a != NULL ? slash_a + 1 : a, slash_b != NULL ? slash_b + 1 : b) == 0 &&
           weft_gnuplot_files_of(a, &x) && weft_gnuplot_files_of(b, &y) &&
           stat(x.folder, &in_x) == 0 && stat(y.folder, &in_y) == 0 &&
           in_x.st_dev == in_y.st_dev && in_x.st_ino == in_y.st_ino;
}

bool weft_cli_fabric_outputs_good(const char *gantt, const char *chrome, const char *const *inputs,
                                  uint32_t count)
{
    static struct weft_gnuplot_files picture;
    char png[sizeof(picture.gp_path)];
    if (!weft_output_distinct("sim fabric", chrome, inputs, count)) {
        return false;
    }
    if (gantt == NULL || !weft_gnuplot_files_of(gantt, &picture)) {
        return true; /* which weft_cli_fabric_gantt reports */
    }
    snprintf(png, sizeof(png), "%s/%s", picture.folder, picture.png);
    const char *const outputs[] = {png, picture.gp_path};
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(outputs); i++) {
        if (!weft_output_distinct("sim fabric", outputs[i], inputs, count)) {
            return false;
        }
        if (chrome != NULL && is_one_file(chrome, outputs[i])) {
            (void)weft_cli_fail("sim fabric",
                                "--chrome and --gantt both write %s; name another file", chrome);
            return false;
        }
    }
    return true;
}

bool weft_cli_fabric_gantt(const char *path, const struct weft_fabric_config *config,
                           const struct weft_cli_fabric_spans *spans)
{
    static struct weft_gnuplot_files picture;
    if (!weft_gnuplot_files_of(path, &picture)) {
        (void)weft_cli_fail("sim fabric", "--gantt \"%s\" is not a valid file name", path);
        return false;
    }
    if (spans->count == 0) {
        (void)weft_cli_fail("sim fabric",
                            "no transfer or step ended in this time, so there is nothing to draw");
        return false;
    }
    FILE *script = weft_output_open(picture.gp_path);
    if (script != NULL) {
        print_script(script, picture.png, config, spans);
    }
    if (!weft_output_close("sim fabric", picture.gp_path, script, script != NULL)) {
        return false;
    }
    return weft_gnuplot_draw("sim fabric", &picture);
}

/* ---- Chrome trace ---------------------------------------------------------------------------- */

/* Slices of one track must not overlap, so a kind has more tracks where a host has several at
 * once. */
struct lanes {
    uint64_t free_ns[WEFT_FABRIC_SPANS][LANES_MAX];
};

static uint32_t lane_of(struct lanes *lanes, const struct weft_fabric_span *span)
{
    uint32_t lane = 0;
    while (lane + 1 < LANES_MAX && lanes->free_ns[span->kind][lane] > span->from_ns) {
        lane++;
    }
    lanes->free_ns[span->kind][lane] = span->to_ns;
    return lane;
}

static int by_host_and_start(const void *a, const void *b)
{
    const struct weft_fabric_span *x = a;
    const struct weft_fabric_span *y = b;
    if (x->host != y->host) {
        return x->host < y->host ? -1 : 1;
    }
    return (x->from_ns > y->from_ns) - (x->from_ns < y->from_ns);
}

static void print_slice(FILE *out, const struct weft_fabric_config *config,
                        const struct weft_fabric_span *span, uint32_t tid)
{
    char peer[NAME_BYTES];
    host_name(config, span->peer, peer);
    fprintf(out,
            ",\n{\"ph\": \"X\", \"name\": \"%s\", \"cat\": \"%s\", \"pid\": %" PRIu32
            ", \"tid\": %" PRIu32 ", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"peer\": \"%s\", "
            "\"bytes\": %" PRIu64 "}}",
            weft_fabric_span_name(span->kind), weft_fabric_span_name(span->kind), span->host, tid,
            (double)span->from_ns / 1e3, (double)(span->to_ns - span->from_ns) / 1e3, peer,
            span->bytes);
}

static void print_host(FILE *out, const struct weft_fabric_config *config,
                       const struct weft_fabric_span *spans, size_t count)
{
    struct lanes lanes = {0};
    bool named[WEFT_FABRIC_SPANS][LANES_MAX] = {0};
    for (size_t i = 0; i < count; i++) {
        uint32_t lane = lane_of(&lanes, &spans[i]);
        uint32_t tid = (uint32_t)spans[i].kind * LANES_MAX + lane;
        if (!named[spans[i].kind][lane]) {
            named[spans[i].kind][lane] = true;
            fprintf(out,
                    ",\n{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %" PRIu32
                    ", \"tid\": %" PRIu32 ", \"args\": {\"name\": \"%s %" PRIu32 "\"}}",
                    spans[i].host, tid, weft_fabric_span_name(spans[i].kind), lane + 1);
        }
        print_slice(out, config, &spans[i], tid);
    }
}

bool weft_cli_fabric_chrome(const char *path, const struct weft_fabric_config *config,
                            const struct weft_cli_fabric_spans *spans)
{
    FILE *out = weft_output_open(path);
    qsort(spans->spans, spans->count, sizeof(*spans->spans), by_host_and_start);
    size_t at = 0;
    for (uint32_t h = 0; out != NULL && h < hosts_of(config); h++) {
        char name[NAME_BYTES];
        size_t first = at;
        while (at < spans->count && spans->spans[at].host == h) {
            at++;
        }
        host_name(config, h, name);
        fprintf(out,
                "%s\n{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %" PRIu32
                ", \"args\": {\"name\": \"%s\"}}",
                h > 0 ? "," : "[", h, name);
        print_host(out, config, spans->spans + first, at - first);
    }
    if (out != NULL) {
        fprintf(out, "\n]\n");
    }
    return weft_output_close("sim fabric", path, out, out != NULL);
}
