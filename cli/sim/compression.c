/* `weft sim compression`: how many bytes are saved by summing the updates of a topic model, for
 * different numbers of topics. */
#include "cli/gnuplot.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/train/job.h"
#include "cli/verbs.h"

#include "ml/compression.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const uint32_t topics_of[] = {5, 10, 25, 50, 100, 150, 200, 250};

enum { POINTS = WEFT_ARRAY_COUNT(topics_of) };

struct compression {
    struct weft_ml_compression_config config;
    const char *data;
    const char *picture;
    bool json;
    uint32_t count;
    uint32_t topics[POINTS];
    struct weft_ml_compression points[POINTS];
};

static double rows_ratio(const struct weft_ml_compression *c)
{
    return (double)c->rows_separate / (double)c->rows_together;
}

static double entries_ratio(const struct weft_ml_compression *c)
{
    return (double)c->entries_separate / (double)c->entries_together;
}

static cJSON *point_json(const struct weft_ml_compression *c, uint32_t topics)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "topics", topics);
    cJSON_AddNumberToObject(o, "steps", c->steps);
    cJSON *rows = cJSON_AddObjectToObject(o, "rows");
    cJSON_AddNumberToObject(rows, "separate_bytes",
                            (double)weft_ml_compression_rows_bytes(c->rows_separate, topics));
    cJSON_AddNumberToObject(rows, "aggregate_bytes",
                            (double)weft_ml_compression_rows_bytes(c->rows_together, topics));
    cJSON_AddNumberToObject(rows, "ratio", rows_ratio(c));
    cJSON *entries = cJSON_AddObjectToObject(o, "entries");
    cJSON_AddNumberToObject(entries, "separate_bytes",
                            (double)weft_ml_compression_entries_bytes(c->entries_separate));
    cJSON_AddNumberToObject(entries, "aggregate_bytes",
                            (double)weft_ml_compression_entries_bytes(c->entries_together));
    cJSON_AddNumberToObject(entries, "ratio", entries_ratio(c));
    return o;
}

static bool print_json(const struct compression *c)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "workers", c->config.workers);
    cJSON_AddNumberToObject(o, "batch", c->config.batch_rows);
    cJSON_AddNumberToObject(o, "epochs", c->config.epochs);
    cJSON_AddNumberToObject(o, "seed", (double)c->config.seed);
    cJSON *points = cJSON_AddArrayToObject(o, "points");
    for (uint32_t i = 0; i < c->count; i++) {
        cJSON_AddItemToArray(points, point_json(&c->points[i], c->topics[i]));
    }
    return weft_output_json("sim compression", o, false);
}

static void print_text(const struct compression *c)
{
    printf("%" PRIu32 " workers, %" PRIu32 " documents per worker and step, epoch %" PRIu32
           ", seed %" PRIu64 "\nrows, entries: bytes of the workers' updates / bytes of their sum; "
           "MB: the updates of one step\n"
           "topics     rows         MB   entries         MB\n",
           c->config.workers, c->config.batch_rows, c->config.epochs, c->config.seed);
    for (uint32_t i = 0; i < c->count; i++) {
        const struct weft_ml_compression *p = &c->points[i];
        double steps = (double)p->steps * 1e6;
        printf("%6" PRIu32 " %8.2f %10.3f %9.2f %10.3f\n", c->topics[i], rows_ratio(p),
               (double)weft_ml_compression_rows_bytes(p->rows_separate, c->topics[i]) / steps,
               entries_ratio(p),
               (double)weft_ml_compression_entries_bytes(p->entries_separate) / steps);
    }
}

/* ---- the picture ----------------------------------------------------------------------------- */

static void print_script(FILE *script, const char *png, const struct compression *c)
{
    fprintf(script,
            "set terminal pngcairo size 800,500 font 'sans,11'\nset output '%s'\n"
            "set title '%" PRIu32 " workers, %" PRIu32
            " documents per worker and step' noenhanced\n"
            "set xlabel 'topics K'\nset ylabel 'bytes of the updates / bytes of their sum'\n"
            "set yrange [0:*]\nset grid\nset key right bottom\n"
            "$data << EOD\n",
            png, c->config.workers, c->config.batch_rows);
    for (uint32_t i = 0; i < c->count; i++) {
        fprintf(script, "%" PRIu32 " %.4f %.4f\n", c->topics[i], rows_ratio(&c->points[i]),
                entries_ratio(&c->points[i]));
    }
    fprintf(script, "EOD\nplot $data using 1:2 with linespoints lw 2 title 'whole rows', "
                    "$data using 1:3 with linespoints lw 2 title 'counts that changed'\n");
}

static bool draw(const struct compression *c)
{
    static struct weft_gnuplot_files files;
    if (!weft_gnuplot_files_of(c->picture, &files)) {
        (void)weft_cli_fail("sim compression", "--picture \"%s\" is not a valid file name",
                            c->picture);
        return false;
    }
    FILE *script = weft_output_open(files.gp_path);
    if (script != NULL) {
        print_script(script, files.png, c);
    }
    return weft_output_close("sim compression", files.gp_path, script, script != NULL) &&
           weft_gnuplot_draw("sim compression", &files);
}

/* ---- the command ----------------------------------------------------------------------------- */

static bool measure(struct compression *c, const struct weft_ml_dataset *dataset)
{
    for (uint32_t i = 0; i < c->count; i++) {
        struct weft_ml_compression_config config = c->config;
        config.topics = c->topics[i];
        weft_status status = weft_ml_compression_measure(dataset, &config, &c->points[i]);
        if (status != WEFT_OK || c->points[i].rows_together == 0) {
            (void)weft_cli_fail("sim compression", "%s",
                                status == WEFT_NOMEM ? "out of memory; try fewer --topics"
                                                     : "the data has no documents to train on");
            return false;
        }
    }
    return true;
}

static int compression_run(struct compression *c)
{
    struct weft_error error = {0};
    struct weft_ml_dataset dataset;
    char path[WEFT_ML_PATH_BYTES];
    const struct weft_ml_format *format = NULL;
    const struct weft_job job = {.data = c->data, .format = "docword"};
    if (weft_job_locate(&job, &error, path) != WEFT_OK ||
        weft_ml_format_find("docword", &error, &format) != WEFT_OK ||
        weft_ml_dataset_load(path, format, &error, &dataset) != WEFT_OK) {
        return weft_cli_fail("sim compression", "%s", error.text);
    }
    bool good = measure(c, &dataset);
    weft_ml_dataset_fini(&dataset);
    if (!good || (c->json && !print_json(c))) {
        return WEFT_EXIT_FAILED;
    }
    if (!c->json) {
        print_text(c);
    }
    return c->picture == NULL || draw(c) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_sim_compression(int argc, char **argv)
{
    static struct compression c = {
        .config = {.workers = 8, .batch_rows = 64, .epochs = 10, .seed = 1},
        .data = "uci-kos/docword.kos.txt",
    };
    const struct weft_option options[] = {
        {"data", "FILE",
         "bags of words (docword): a path, or a name in WEFT_DATA_DIR and the\n"
         "data directories that weft train searches",
         WEFT_OPTION_STRING, .value = &c.data},
        {"workers", "N", "workers whose updates are aggregated", WEFT_OPTION_U32, &c.config.workers,
         .min = 1,
         .max = 1000},
        {"batch", "N", "documents per worker and step", WEFT_OPTION_U32, &c.config.batch_rows,
         .min = 1, .max = 1000000},
        {"topics", "K", "one number of topics; 0 = 5, 10, 25, 50, 100, 150, 200 and 250", WEFT_OPTION_U32,
         &c.config.topics, .max = WEFT_ML_FACTORS_MAX},
        {"epochs", "N", "passes over the documents; the last one is measured", WEFT_OPTION_U32,
         &c.config.epochs, .min = 1, .max = 10000},
        {"seed", "N", "seed of topics and of the order of documents", WEFT_OPTION_U64,
         .value = &c.config.seed},
        {"json", NULL, "print the result as one JSON object", WEFT_OPTION_FLAG, .value = &c.json},
        {"picture", "FILE", "draw both ratios: FILE.png, with its gnuplot script FILE.gp",
         WEFT_OPTION_STRING, &c.picture, .fallback = "none"},
        {0},
    };
    const struct weft_command command = {
        .name = "sim compression",
        .summary = "compute how much an aggregator saves: bytes of updates vs. of their sum",
        .description =
            "Trains a topic model (lda) in one process. In each step --workers simulated workers push\n"
            "one update each. Compares the bytes of these updates with those of their sum, for\n"
            "several numbers of topics. rows: a word's row of counts is sent as a whole, as weft\n"
            "pushes it. entries: only changed counts are sent, each with its index. The same seed\n"
            "gives the same result.",
        .example =
            "  weft sim compression --data uci-kos/docword.kos.txt --picture compression.png\n"
            "  weft sim compression --topics 100 --workers 30 --json",
        .options = options,
    };
    int status = weft_options_parse(&command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    c.count = c.config.topics > 0 ? 1 : POINTS;
    for (uint32_t i = 0; i < c.count; i++) {
        c.topics[i] = c.config.topics > 0 ? c.config.topics : topics_of[i];
    }
    return compression_run(&c);
}
