/* `weft trace figures`: the paper's figures from runs, and in words what the paper found and what they
 * show. */
#define _GNU_SOURCE
#include "base/units.h"
#include "cli/options.h"
#include "cli/trace/figure.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FIGURES_MAX = WEFT_FIGURE_RUNS_MAX * WEFT_FIGURES_OF_ONE + WEFT_FIGURES_OF_RUNS };

struct album {
    struct weft_figure_run *runs;
    unsigned run_count;
    struct weft_figure *figures;
    unsigned figure_count;
    const char *folder;
    const char *only; /* numbers with commas between; NULL: all */
    bool no_gnuplot;
    bool good;
};

/* ---- making ---------------------------------------------------------------------------------- */

/* Exactly one of fn_one and fn_runs. */
static void make(struct album *album, const struct weft_figure_run *run, weft_figure_one_fn *fn_one,
                 weft_figure_runs_fn *fn_runs)
{
    struct weft_figure *figure = &album->figures[album->figure_count++];
    char *body = NULL;
    size_t bytes = 0;
    FILE *stream = weft_recdb_need(open_memstream(&body, &bytes));
    figure->run = run;
    if (fn_one != NULL) {
        fn_one(run, figure, stream);
    } else {
        fn_runs(album->runs, album->run_count, figure, stream);
    }
    bool written = fclose(stream) == 0;
    bool many = album->run_count > 1 && run != NULL;
    snprintf(figure->png, sizeof(figure->png), "%s%sfig%s-%s.png", many ? run->name : "",
             many ? "-" : "", figure->number, figure->slug);
    if (figure->why_not[0] == '\0') {
        bool drawn = written && weft_figure_draw(figure, body, album->folder, &album->no_gnuplot);
        album->good = album->good && drawn;
        if (!drawn) {
            snprintf(figure->why_not, sizeof(figure->why_not), "%s",
                     album->no_gnuplot ? "gnuplot is missing" : "it could not be drawn");
        }
    }
    free(body);
}

/* In the order of the functions. */
static const char *const numbers_of_one[WEFT_FIGURES_OF_ONE] = {"4", "5", "6", "7a", "7b", "10"};
static const char *const numbers_of_runs[WEFT_FIGURES_OF_RUNS] = {"8", "9"};

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

static const char *parse_only(const char *text, void *value)
{
    for (const char *word = text; word != NULL; word = strchr(word, ',')) {
        word += *word == ',';
        bool known = false;
        for (unsigned i = 0; i < WEFT_FIGURES_OF_ONE; i++) {
            known = known || is_word(word, strcspn(word, ","), numbers_of_one[i]);
        }
        for (unsigned i = 0; i < WEFT_FIGURES_OF_RUNS; i++) {
            known = known || is_word(word, strcspn(word, ","), numbers_of_runs[i]);
        }
        if (!known) {
            return "some of 4, 5, 6, 7a, 7b, 8, 9, 10, with commas between";
        }
    }
    *(const char **)value = text;
    return NULL;
}

static void make_all(struct album *album)
{
    for (unsigned r = 0; r < album->run_count; r++) {
        for (unsigned i = 0; i < WEFT_FIGURES_OF_ONE; i++) {
            if (wanted(album->only, numbers_of_one[i])) {
                make(album, &album->runs[r], weft_figures_of_one[i], NULL);
            }
        }
    }
    for (unsigned i = 0; i < WEFT_FIGURES_OF_RUNS; i++) {
        if (wanted(album->only, numbers_of_runs[i])) {
            make(album, NULL, NULL, weft_figures_of_runs[i]);
        }
    }
}

/* Two files of one name in two folders shall have pictures of two names. */
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

static bool load(struct album *album, const char *const *files, unsigned count)
{
    bool good = true;
    for (unsigned i = 0; good && i < count; i++) {
        album->run_count++;
        good = weft_figure_run_make(files[i], &album->runs[i]);
    }
    number_names(album);
    return good;
}

/* ---- words ----------------------------------------------------------------------------------- */

static void print_text(const struct album *album, FILE *out)
{
    for (unsigned i = 0; i < album->figure_count; i++) {
        const struct weft_figure *f = &album->figures[i];
        const char *run = album->run_count > 1 && f->run != NULL ? f->run->file : "";
        if (f->why_not[0] != '\0' && f->here[0] == '\0') {
            fprintf(out, "figure %s %s%sis left out: %s\n", f->number, run,
                    run[0] != '\0' ? " " : "", f->why_not);
            continue;
        }
        fprintf(out, "figure %s: %s\n  paper: %s\n  here (%s): %s\n", f->number,
                f->why_not[0] != '\0' ? f->why_not : f->png, f->paper,
                weft_figure_verdict_name(f->verdict), f->here);
    }
    for (unsigned i = 0; i < album->run_count; i++) {
        const struct weft_recdb_digest *d = &album->runs[i].digest;
        uint64_t dropped = d->roles[0].dropped + d->roles[1].dropped;
        if (dropped + album->runs[i].refused > 0) {
            fprintf(out,
                    "%s: %" PRIu64 " records were DROPPED while it ran, %" PRIu64
                    " rows cannot be; no figure has them\n",
                    album->runs[i].file, dropped, album->runs[i].refused);
        }
    }
}

static char *json_of(const struct album *album)
{
    cJSON *object = weft_recdb_need(cJSON_CreateObject());
    cJSON *runs = cJSON_AddArrayToObject(object, "runs");
    for (unsigned i = 0; i < album->run_count; i++) {
        const struct weft_figure_run *run = &album->runs[i];
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "file", run->file);
        cJSON_AddStringToObject(one, "command", run->title);
        cJSON_AddStringToObject(one, "transport", run->transport);
        cJSON_AddNumberToObject(one, "rpcs", (double)weft_recdb_digest_rpcs(&run->digest));
        cJSON_AddNumberToObject(
            one, "dropped", (double)(run->digest.roles[0].dropped + run->digest.roles[1].dropped));
        cJSON_AddNumberToObject(one, "refused", (double)run->refused);
        cJSON_AddItemToArray(runs, one);
    }
    cJSON *figures = cJSON_AddArrayToObject(object, "figures");
    for (unsigned i = 0; i < album->figure_count; i++) {
        const struct weft_figure *f = &album->figures[i];
        bool made = f->why_not[0] == '\0';
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "figure", f->number);
        cJSON_AddItemToObject(
            one, "file", f->run != NULL ? cJSON_CreateString(f->run->file) : cJSON_CreateNull());
        cJSON_AddItemToObject(one, "png", made ? cJSON_CreateString(f->png) : cJSON_CreateNull());
        cJSON_AddItemToObject(one, "left_out",
                              made ? cJSON_CreateNull() : cJSON_CreateString(f->why_not));
        cJSON_AddStringToObject(one, "paper", f->paper);
        cJSON_AddStringToObject(one, "here", f->here);
        cJSON_AddStringToObject(one, "verdict",
                                f->here[0] != '\0' ? weft_figure_verdict_name(f->verdict)
                                                   : "cannot tell");
        cJSON_AddItemToArray(figures, one);
    }
    char *text = weft_recdb_need(cJSON_PrintUnformatted(object));
    cJSON_Delete(object);
    return text;
}

static bool write_file(const struct album *album, const char *name, const char *json)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", album->folder, name) < 0) {
        path = NULL;
    }
    FILE *out = fopen(weft_recdb_need(path), "we");
    bool good = out != NULL;
    if (good) {
        if (json != NULL) {
            fprintf(out, "%s\n", json);
        } else {
            print_text(album, out);
        }
        good = ferror(out) == 0;
        good = fclose(out) == 0 && good;
    }
    if (!good) {
        fprintf(stderr, "weft trace figures: %s: %s\n", path, strerror(errno));
    }
    free(path);
    return good;
}

static bool report(const struct album *album, bool json)
{
    char *text = json_of(album);
    bool good = write_file(album, "findings.txt", NULL) && write_file(album, "figures.json", text);
    if (json) {
        puts(text);
    } else {
        print_text(album, stdout);
    }
    free(text);
    if (album->no_gnuplot) {
        fprintf(stderr,
                "weft trace figures: drawing needs gnuplot (Debian: apt-get install "
                "gnuplot-nox); the scripts are in %s\n",
                album->folder);
    }
    return good && fflush(stdout) == 0;
}

static int run(const char *const *files, unsigned count, const char *folder, const char *only,
               bool json)
{
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "weft trace figures: %s: %s\n", folder, strerror(errno));
        return WEFT_EXIT_FAILED;
    }
    struct album album = {
        .runs = weft_recdb_need(calloc(count, sizeof(*album.runs))),
        .figures = weft_recdb_need(calloc(FIGURES_MAX, sizeof(*album.figures))),
        .folder = folder,
        .only = only,
        .good = true,
    };
    bool good = load(&album, files, count);
    if (good) {
        make_all(&album);
        good = report(&album, json) && album.good;
    }
    for (unsigned i = 0; i < album.run_count; i++) {
        weft_figure_run_fini(&album.runs[i]);
    }
    free(album.runs);
    free(album.figures);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_recdb_figures(int argc, char **argv)
{
    const char *folder = "figures";
    const char *only = NULL;
    bool json = false;
    const char **files = weft_recdb_need(calloc((size_t)argc, sizeof(*files)));
    unsigned count = weft_recdb_take_words(&argc, argv, files);
    const struct weft_option options[] = {
        {"out", "DIR", "folder of the pictures; is made; also -o DIR", WEFT_OPTION_STRING,
         .value = &folder},
        {"only", "LIST", "these figures: some of 4, 5, 6, 7a, 7b, 8, 9, 10, with commas between",
         WEFT_OPTION_CUSTOM, &only, .parse = parse_only, .fallback = "all"},
        {"json", NULL, "print the findings as one JSON object", WEFT_OPTION_FLAG, .value = &json},
        {0},
    };
    const struct weft_command command = {
        .name = "trace figures FILE...",
        .summary = "the figures of [imc20] from runs of your own, and both findings in words",
        .description =
            "Each FILE is the database that --records of one run wrote (parts of a run: merge "
            "them\n"
            "before). Of each run: latencies (Fig. 4), their stages (5), sizes of replies (6),\n"
            "intervals and active workers (7), hot parameters (10). Of several runs with "
            "different\n"
            "numbers of workers: CPU (8) and cost of an RPC (9).\n"
            "\n"
            "DIR gets a PNG and its gnuplot script for each figure, findings.txt and "
            "figures.json.\n"
            "Each finding of the paper stands beside what the run shows and one of: agrees, "
            "partly,\n"
            "differs, cannot tell. What the records cannot show is left out, with the reason.",
        .example = "  weft trace figures run.db --out pictures\n"
                   "  weft trace figures s1.db s2.db s3.db -o scales --only 8,9 --json | jq "
                   "'.figures[].verdict'",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status == WEFT_OPTIONS_RUN && count == 0) {
        status =
            weft_options_usage(&command, "which file? It comes first: weft trace figures FILE");
    } else if (status == WEFT_OPTIONS_RUN && count > WEFT_FIGURE_RUNS_MAX) {
        status = weft_options_usage(&command, "at most %d files", WEFT_FIGURE_RUNS_MAX);
    } else if (status == WEFT_OPTIONS_RUN) {
        status = run(files, count, folder, only, json);
    }
    free(files);
    return status;
}
