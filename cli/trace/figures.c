/* `weft trace figures`: the paper's figures drawn from runs, and the paper's findings compared with
 * the runs'. */
#define _GNU_SOURCE
#include "cli/trace/figure.h"

#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct album {
    const struct weft_trace_files *files;
    struct weft_figure_run *runs;
    unsigned run_count;
    struct weft_figure *figures;
    unsigned figure_count;
    const char *folder;
    const char *only; /* numbers with commas between; NULL: all */
    bool no_gnuplot;
    bool good;
};

static const char findings_text[] = "findings.txt";
static const char findings_json[] = "figures.json";

/* ---- drawing --------------------------------------------------------------------------------- */

static bool is_word(const char *word, size_t bytes, const char *number)
{
    return strlen(number) == bytes && memcmp(word, number, bytes) == 0;
}

static bool wanted(const char *only, const char *number)
{
    for (const char *word = only; word != NULL; word = strchr(word, ',')) {
        word += *word == ',';
        if (is_word(word, strcspn(word, ","), number)) {
            return true;
        }
    }
    return only == NULL;
}

static bool has_number(const struct weft_figure_kind *kinds, const char *word)
{
    while (kinds->number != NULL && !is_word(word, strcspn(word, ","), kinds->number)) {
        kinds++;
    }
    return kinds->number != NULL;
}

static const char *parse_only(const char *text, void *value)
{
    for (const char *word = text; word != NULL; word = strchr(word, ',')) {
        word += *word == ',';
        if (!has_number(weft_figures_of_one, word) && !has_number(weft_figures_of_runs, word)) {
            return "a comma-separated list of " WEFT_FIGURE_NUMBERS;
        }
    }
    *(const char **)value = text;
    return NULL;
}

static void name_png(const struct album *album, const struct weft_figure_run *run,
                     const struct weft_figure_kind *kind, char png_p[WEFT_FIGURE_FILE])
{
    bool many = album->run_count > 1 && run != NULL;
    snprintf(png_p, WEFT_FIGURE_FILE, "%s%sfig%s-%s.png", many ? run->name : "", many ? "-" : "",
             kind->number, kind->slug);
}

static void make(struct album *album, const struct weft_figure_run *run,
                 const struct weft_figure_kind *kind)
{
    struct weft_figure *figure = &album->figures[album->figure_count++];
    char *body = NULL;
    size_t bytes = 0;
    FILE *stream = weft_trace_need(open_memstream(&body, &bytes));
    *figure = (struct weft_figure){.kind = kind, .run = run};
    if (run != NULL) {
        kind->of_one(run, figure, stream);
    } else {
        kind->of_runs(album->runs, album->run_count, figure, stream);
    }
    bool written = fclose(stream) == 0;
    name_png(album, run, kind, figure->png);
    if (figure->why_not[0] == '\0') {
        enum weft_gnuplot drawn =
            written ? weft_figure_draw(figure, body, album->folder) : WEFT_GNUPLOT_FAILED;
        album->no_gnuplot = album->no_gnuplot || drawn == WEFT_GNUPLOT_MISSING;
        album->good = album->good && drawn == WEFT_GNUPLOT_DRAWN;
        if (drawn != WEFT_GNUPLOT_DRAWN) {
            snprintf(figure->why_not, sizeof(figure->why_not), "%s",
                     drawn == WEFT_GNUPLOT_MISSING ? "gnuplot is missing" : "gnuplot failed");
        }
    }
    free(body);
}

static void for_all(struct album *album,
                    void (*act)(struct album *album, const struct weft_figure_run *run,
                                const struct weft_figure_kind *kind))
{
    const struct weft_figure_kind *kind;
    for (unsigned r = 0; r < album->run_count; r++) {
        for (kind = weft_figures_of_one; kind->number != NULL; kind++) {
            if (wanted(album->only, kind->number)) {
                act(album, &album->runs[r], kind);
            }
        }
    }
    for (kind = weft_figures_of_runs; kind->number != NULL; kind++) {
        if (wanted(album->only, kind->number)) {
            act(album, NULL, kind);
        }
    }
}

/* ---- inputs are not overwritten -------------------------------------------------------------- */

static void check_output(struct album *album, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", album->folder, name) < 0) {
        path = NULL;
    }
    album->good = album->good && weft_output_distinct("trace figures", weft_trace_need(path),
                                                      album->files->paths, album->files->count);
    free(path);
}

static void check_figure(struct album *album, const struct weft_figure_run *run,
                         const struct weft_figure_kind *kind)
{
    char name[WEFT_FIGURE_FILE];
    name_png(album, run, kind, name);
    check_output(album, name);
    weft_figure_script_name(name);
    check_output(album, name);
}

/* Before anything is written. False: the error was printed. */
static bool check_outputs(struct album *album)
{
    check_output(album, findings_text);
    check_output(album, findings_json);
    for_all(album, check_figure);
    return album->good;
}

/* Files of the same name in different directories must get plots with different names. */
static void number_names(struct album *album)
{
    for (unsigned i = 1; i < album->run_count; i++) {
        for (unsigned j = 0; j < i; j++) {
            if (strcmp(album->runs[i].name, album->runs[j].name) == 0) {
                char name[WEFT_FIGURE_NAME];
                snprintf(name, sizeof(name), "%.60s-%u", album->runs[i].name, i + 1);
                memcpy(album->runs[i].name, name, sizeof(name));
            }
        }
    }
}

static bool load(struct album *album, const struct weft_trace_files *files)
{
    bool good = true;
    for (unsigned i = 0; good && i < files->count; i++) {
        album->run_count++;
        good = weft_figure_run_make(files->paths[i], &album->runs[i]);
    }
    number_names(album);
    return good;
}

/* ---- text output ----------------------------------------------------------------------------- */

static void print_text(FILE *out, const void *arg)
{
    const struct album *album = arg;
    for (unsigned i = 0; i < album->figure_count; i++) {
        const struct weft_figure *f = &album->figures[i];
        const char *run = album->run_count > 1 && f->run != NULL ? f->run->file : "";
        if (f->why_not[0] != '\0' && f->here[0] == '\0') {
            fprintf(out, "figure %s %s%sis omitted: %s\n", f->kind->number, run,
                    run[0] != '\0' ? " " : "", f->why_not);
            continue;
        }
        fprintf(out, "figure %s: %s\n  paper: %s\n  here (%s): %s\n", f->kind->number,
                f->why_not[0] != '\0' ? f->why_not : f->png, f->kind->paper,
                weft_figure_verdict_name(f->verdict), f->here);
    }
    for (unsigned i = 0; i < album->run_count; i++) {
        const struct weft_recdb_digest *d = &album->runs[i].digest;
        const uint64_t dropped = weft_recdb_digest_dropped(d), cut = weft_recdb_digest_cut(d);
        if (wanted(album->only, "10b") || wanted(album->only, "10c")) {
            weft_figure_aggregators_text(out, &album->runs[i]);
        }
        if (dropped + album->runs[i].refused > 0) {
            fprintf(out,
                    "%s: %" PRIu64 " records were DROPPED during the run, and %" PRIu64
                    " rows are invalid; the figures do not include them\n",
                    album->runs[i].file, dropped, album->runs[i].refused);
        }
        if (cut > 0) {
            fprintf(out,
                    "%s: the records of %" PRIu64 " processes are INCOMPLETE: they were killed, or "
                    "had not ended; the figures do not include what is missing\n",
                    album->runs[i].file, cut);
        }
    }
}

static void print_json(FILE *out, const void *arg)
{
    const struct album *album = arg;
    cJSON *object = cJSON_CreateObject();
    cJSON *runs = cJSON_AddArrayToObject(object, "runs");
    for (unsigned i = 0; i < album->run_count; i++) {
        const struct weft_figure_run *run = &album->runs[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "file", run->file);
        cJSON_AddStringToObject(one, "command", run->title);
        cJSON_AddStringToObject(one, "transport", run->transport);
        cJSON_AddNumberToObject(one, "rpcs", (double)weft_recdb_digest_rpcs(&run->digest));
        cJSON_AddNumberToObject(one, "dropped", (double)weft_recdb_digest_dropped(&run->digest));
        cJSON_AddNumberToObject(one, "refused", (double)run->refused);
        cJSON_AddNumberToObject(one, "processes_incomplete",
                                (double)weft_recdb_digest_cut(&run->digest));
        weft_figure_aggregators_json(one, run);
        cJSON_AddItemToArray(runs, one);
    }
    cJSON *figures = cJSON_AddArrayToObject(object, "figures");
    for (unsigned i = 0; i < album->figure_count; i++) {
        const struct weft_figure *f = &album->figures[i];
        bool made = f->why_not[0] == '\0';
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "figure", f->kind->number);
        weft_json_add_text(one, "file", f->run != NULL ? f->run->file : NULL);
        weft_json_add_text(one, "png", made ? f->png : NULL);
        weft_json_add_text(one, "left_out", made ? NULL : f->why_not);
        cJSON_AddStringToObject(one, "paper", f->kind->paper);
        cJSON_AddStringToObject(one, "here", f->here);
        cJSON_AddStringToObject(one, "verdict",
                                f->here[0] != '\0' ? weft_figure_verdict_name(f->verdict)
                                                   : "cannot tell");
        cJSON_AddItemToArray(figures, one);
    }
    char *text = weft_trace_need(cJSON_PrintUnformatted(object));
    cJSON_Delete(object);
    weft_utf8_repair(text);
    fprintf(out, "%s\n", text);
    free(text);
}

static bool report(const struct album *album, bool json)
{
    bool good = weft_figure_file(album->folder, findings_text, print_text, album) &&
                weft_figure_file(album->folder, findings_json, print_json, album);
    (json ? print_json : print_text)(stdout, album);
    if (album->no_gnuplot) {
        fprintf(stderr,
                "weft trace figures: drawing " WEFT_GNUPLOT_ADVICE "; the scripts are in %s\n",
                album->folder);
    }
    return weft_output_close("trace figures", NULL, stdout, true) && good;
}

static int run(const struct weft_trace_files *files, const char *folder, const char *only,
               bool json)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return weft_cli_fail("trace figures", "%s: %s", folder, strerror(errno));
    }
    struct album album = {
        .files = files,
        .runs = weft_trace_need(calloc(files->count, sizeof(*album.runs))),
        .figures = weft_trace_need(calloc(WEFT_FIGURES_MAX, sizeof(*album.figures))),
        .folder = folder,
        .only = only,
        .good = true,
    };
    bool good = load(&album, files) && check_outputs(&album);
    if (good) {
        for_all(&album, make);
        good = report(&album, json) && album.good;
    }
    for (unsigned i = 0; i < album.run_count; i++) {
        weft_figure_run_fini(&album.runs[i]);
    }
    free(album.runs);
    free(album.figures);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_trace_figures(int argc, char **argv)
{
    const char *folder = "figures";
    const char *only = NULL;
    bool json = false;
    struct weft_trace_files files;
    const struct weft_option options[] = {
        {"out", "DIR", "directory for the plots, created if needed; also -o DIR",
         WEFT_OPTION_STRING, .value = &folder, .letter = 'o'},
        {"only", "LIST", "only these figures: comma-separated, from\n" WEFT_FIGURE_NUMBERS,
         WEFT_OPTION_CUSTOM, &only, .parse = parse_only, .fallback = "all"},
        {"json", NULL, "print the findings as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        {0},
    };
    struct weft_command command = {
        .name = "trace figures",
        .summary = "plot the figures of [imc20] from your runs, and compare the findings",
        .description =
            "Each FILE is the database written by --records in one run (merge the parts of a run\n"
            "first). For each run: latencies (Fig. 4), their stages (5), sizes of replies (6),\n"
            "intervals and active workers (7), hot parameters (10), what aggregators absorb (10b,\n"
            "if `weft aggregate --records` was part of the run). For several runs with different\n"
            "numbers of workers: CPU (8) and cost of an RPC (9); for runs with and without\n"
            "aggregators: the servers' CPU and PS_proc for an update (10c).\n"
            "\n"
            "Writes to DIR a PNG and its gnuplot script for each figure, findings.txt and\n"
            "figures.json. Each finding of the paper is listed with the result of the run and one\n"
            "of: agrees, partly, differs, cannot tell. Figures that the records do not support "
            "are\n"
            "omitted, with the reason.",
        .example = "  weft trace figures run.db --out pictures\n"
                   "  weft trace figures s1.db s2.db s3.db -o scales --only 8,9 --json | jq "
                   "'.figures[].verdict'",
        .options = options,
    };
    int status = weft_trace_parse(&command, &files, argc, argv);
    if (status == WEFT_OPTIONS_RUN && files.count > WEFT_FIGURE_RUNS_MAX) {
        status = weft_options_usage(&command, "at most %d files", WEFT_FIGURE_RUNS_MAX);
    }
    return status == WEFT_OPTIONS_RUN ? run(&files, folder, only, json) : status;
}
