/* `weft eval` and `weft predict`: apply a saved model, or the newest checkpoint of a directory, to
 * a data file. They need no servers: the model is loaded into this process (ckpt/model.h). */
#include "cli/output.h"
#include "cli/train/job.h"
#include "cli/verbs.h"
#include "ckpt/model.h"
#include "ml/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum which { ROWS_TEST, ROWS_TRAIN, ROWS_ALL };

static const char *const which_names[] = {
    [ROWS_TEST] = "test", [ROWS_TRAIN] = "train", [ROWS_ALL] = "all", NULL};

struct eval {
    const char *verb;
    const char *model_path;
    const char *data;
    char data_path[WEFT_ML_PATH_BYTES];    /* where it was found */
    const char *format_name;               /* NULL = that of the model */
    const struct weft_ml_model_kind *kind; /* of a checkpoint; NULL = not given */
    bool is_checkpoint;
    uint32_t which;     /* WHICH of --rows */
    const char *output; /* predict; NULL = standard output */
    bool json;          /* eval */

    struct weft_ckpt_model file;
    struct weft_ml_model model;          /* model of the file */
    const struct weft_ml_format *format; /* of the model's data; NULL = unknown */
    struct weft_ml_dataset dataset;
    struct weft_ml_batch batch; /* the selected rows */
    float *rows;                /* (weft_ml_model_rows of the batch, dim) */
    uint32_t known;             /* ids of the batch that the model has */
};

/* Option rows of both verbs. */
#define WEFT_EVAL_OPTIONS(e)                                                                       \
    {"model-file", "PATH", "file from `weft train --save`, or a checkpoint directory",             \
     WEFT_OPTION_STRING, .value = &(e)->model_path, .fallback = ""},                               \
    {"model", "NAME", "model of a checkpoint: lr, fm, mf, mlp or lda (eval only)",                  \
     WEFT_OPTION_CUSTOM, .value = &(e)->kind,                                                      \
     .parse = weft_job_parse_model, .fallback = "lr; not needed for a saved model"},               \
    {"data", "PATH", "data file, searched for in the same places as by `weft train`",              \
     WEFT_OPTION_STRING,                                                                           \
     .value = &(e)->data, .fallback = ""},                                                         \
    {"format", "NAME", "format of the data", WEFT_OPTION_CUSTOM, .value = &(e)->format_name,       \
     .parse = weft_job_parse_format,                                                               \
     .fallback = "that of a saved model; required for a checkpoint"},                              \
    {"rows", "WHICH", "rows to use: test (not used for training), train or all",                   \
     WEFT_OPTION_CHOICE, .value = &(e)->which, .choices = which_names}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status check_format(const struct weft_ml_model_kind *kind,
                                const struct weft_ml_dataset *dataset, struct weft_error *error)
{
    if (kind->predicts_ratings && !dataset->has_ratings) {
        return weft_fail(error, WEFT_DATA,
                         "the model predicts ratings, and the data format has none");
    }
    return kind->counts_topics == dataset->has_counts
               ? WEFT_OK
               : weft_fail(error, WEFT_DATA,
                           "lda requires the format docword, and docword requires lda");
}

/* The rows of a dense model in a checkpoint have consecutive ids: first the feature rows of its
 * training data, then the output rows. */
static weft_status name_dense_rows(struct eval *eval, struct weft_error *error)
{
    const struct weft_ml_dataset *set = &eval->dataset;
    if (eval->file.count != set->feature_count + WEFT_ML_OUTPUT_ROWS) {
        return weft_fail(error, WEFT_DATA,
                         "the checkpoint has %u rows, but a model of this data has %u: --data must "
                         "be the training file",
                         eval->file.count, set->feature_count + WEFT_ML_OUTPUT_ROWS);
    }
    for (uint32_t i = 0; i < eval->file.count; i++) {
        eval->file.ids[i] = i < set->feature_count ? set->feature_ids[i]
                                                   : WEFT_ML_OUTPUT_ID + i - set->feature_count;
    }
    return WEFT_OK;
}

/* A checkpoint has rows, but does not record the model that they belong to. */
static weft_status name_model(struct eval *eval, struct weft_error *error)
{
    uint32_t dim = eval->file.dim;
    const struct weft_ml_model_kind *kind = eval->kind;
    if (kind == NULL) {
        (void)!weft_ml_model_find("lr", NULL, &kind);
    }
    struct weft_ml_model_settings settings = kind->settings;
    if (!weft_ml_model_factors(kind, dim, &settings.factors)) {
        return weft_fail(error, WEFT_DATA,
                         "the rows of the checkpoint have %u floats, which does not match %s; "
                         "give the model with --model",
                         dim, kind->name);
    }
    weft_status status = check_format(kind, &eval->dataset, error);
    if (status == WEFT_OK &&
        weft_ml_model_init(&eval->model, kind, &settings, 0, &eval->dataset) != WEFT_OK) {
        status = weft_fail(error, WEFT_DATA, "out of memory, or the data is too large");
    }
    if (status != WEFT_OK) {
        return status;
    }
    return kind->is_dense ? name_dense_rows(eval, error) : WEFT_OK;
}

static weft_status load_data(struct eval *eval, struct weft_error *error)
{
    const struct weft_ml_format *format = eval->format;
    char *path = eval->data_path;
    if (eval->format_name != NULL) {
        /* cannot fail: the option was checked when it was parsed */
        (void)!weft_ml_format_find(eval->format_name, NULL, &format);
    }
    struct weft_job job = {.format = format->name, .data = eval->data};
    if (weft_job_locate(&job, error, path) != WEFT_OK ||
        weft_ml_dataset_load(path, format, error, &eval->dataset) != WEFT_OK) {
        return WEFT_DATA;
    }
    if (eval->is_checkpoint) {
        return name_model(eval, error);
    }
    return check_format(eval->model.kind, &eval->dataset, error);
}

/* Look up the batch's rows in the model. */
static weft_status find_rows(struct eval *eval, struct weft_error *error)
{
    static const uint64_t output[WEFT_ML_OUTPUT_ROWS] = {WEFT_ML_OUTPUT_ID, WEFT_ML_OUTPUT_ID + 1};
    uint32_t count = eval->batch.id_count;
    eval->known = weft_ckpt_model_rows(&eval->file, eval->batch.ids, count, eval->rows);
    if (eval->model.kind->is_dense &&
        weft_ckpt_model_rows(&eval->file, output, WEFT_ML_OUTPUT_ROWS,
                             eval->rows + (size_t)count * eval->file.dim) < WEFT_ML_OUTPUT_ROWS) {
        return weft_fail(error, WEFT_DATA, "%.200s: the rows of the output layer are missing",
                         eval->model_path);
    }
    return WEFT_OK;
}

/* Build one batch of the selected rows, in file order, and look up its rows in the model. */
static weft_status choose_rows(struct eval *eval, struct weft_error *error)
{
    const struct weft_ml_dataset *set = &eval->dataset;
    uint32_t *all = malloc(set->row_count * sizeof(*all));
    const uint32_t *rows = eval->which == ROWS_TEST ? set->test_rows : set->train_rows;
    uint32_t count = eval->which == ROWS_TEST ? set->test_count : set->train_count;
    weft_status status = all != NULL ? weft_ml_batch_init(&eval->batch, set) : WEFT_NOMEM;
    if (status == WEFT_OK && eval->which == ROWS_ALL) {
        for (uint32_t r = 0; r < set->row_count; r++) {
            all[r] = r;
        }
        rows = all;
        count = set->row_count;
    }
    if (status == WEFT_OK) {
        status = weft_ml_batch_build(&eval->batch, rows, count);
    }
    free(all);
    if (status == WEFT_OK) {
        size_t row_count = weft_ml_model_rows(&eval->model, eval->batch.id_count);
        eval->rows = calloc(row_count * eval->file.dim + 1, sizeof(float));
        status = eval->rows != NULL ? WEFT_OK : WEFT_NOMEM;
    }
    return status == WEFT_OK ? find_rows(eval, error)
                             : weft_fail(error, WEFT_NOMEM, "out of memory");
}

static void complain(void *arg, uint64_t number, const char *text)
{
    (void)arg;
    if (number == 0) {
        fprintf(stderr, "weft: skipped: %s\n", text);
    } else {
        fprintf(stderr, "weft: checkpoint %" PRIu64 " cannot be used: %s\n", number, text);
    }
}

static weft_status load_checkpoint(struct eval *eval, struct weft_error *error)
{
    uint64_t number;
    weft_status status =
        weft_ckpt_model_gather(eval->model_path, complain, NULL, &eval->file, &number, error);
    if (status == WEFT_OK) {
        fprintf(stderr, "weft: checkpoint %" PRIu64 "\n", number);
    }
    return status;
}

static weft_status load_file(struct eval *eval, struct weft_error *error)
{
    struct weft_ml_model *model = &eval->model;
    weft_status status = weft_ckpt_model_load(eval->model_path, &eval->file, error);
    if (status != WEFT_OK) {
        return status;
    }
    *model = (struct weft_ml_model){.dim = eval->file.dim,
                                    .offset = eval->file.offset,
                                    .words = eval->file.count - 1,
                                    .settings = {.alpha = eval->file.alpha,
                                                 .beta = eval->file.beta}};
    if (weft_ml_model_find(eval->file.kind, NULL, &model->kind) != WEFT_OK ||
        weft_ml_format_find(eval->file.format, NULL, &eval->format) != WEFT_OK ||
        !weft_ml_model_factors(model->kind, model->dim, &model->settings.factors) ||
        (model->kind->counts_topics && (model->settings.alpha <= 0 || model->settings.beta <= 0))) {
        return weft_fail(error, WEFT_DATA,
                         "%.200s: unknown model or format; it may be of a newer release",
                         eval->model_path);
    }
    return WEFT_OK;
}

static weft_status load(struct eval *eval, struct weft_error *error)
{
    struct stat info;
    eval->is_checkpoint = stat(eval->model_path, &info) == 0 && S_ISDIR(info.st_mode);
    if (eval->is_checkpoint && eval->format_name == NULL) {
        return weft_fail(error, WEFT_DATA,
                         "--format is missing: a checkpoint does not record the data format");
    }
    if (!eval->is_checkpoint && eval->kind != NULL) {
        return weft_fail(error, WEFT_DATA,
                         "--model is only for a checkpoint; a saved model has its name");
    }
    if ((eval->is_checkpoint ? load_checkpoint : load_file)(eval, error) != WEFT_OK) {
        return WEFT_DATA;
    }
    weft_status status = load_data(eval, error);
    return status == WEFT_OK ? choose_rows(eval, error) : status;
}

static void unload(struct eval *eval)
{
    weft_ml_batch_fini(&eval->batch);
    weft_ml_dataset_fini(&eval->dataset);
    weft_ckpt_model_fini(&eval->file);
    weft_ml_model_fini(&eval->model);
    free(eval->rows);
}

/* Parse, load, run. */
static int run(struct eval *eval, const struct weft_command *command, int argc, char **argv,
               int (*run_loaded)(struct eval *))
{
    int status = weft_options_parse(command, argc, argv);
    if (status != WEFT_OPTIONS_RUN) {
        return status;
    }
    if (eval->model_path == NULL) {
        return weft_options_usage(command, "--model-file is missing");
    }
    if (eval->data == NULL) {
        return weft_options_usage(command, "--data is missing");
    }
    struct weft_error error = {.text = ""};
    status = load(eval, &error) == WEFT_OK ? run_loaded(eval)
                                           : weft_cli_fail(eval->verb, "%s", error.text);
    unload(eval);
    return status;
}

/* ---- eval ------------------------------------------------------------------------------------ */

static bool print_json(const struct eval *eval, const struct weft_ml_quality *quality)
{
    cJSON *report = cJSON_CreateObject();
    cJSON_AddStringToObject(report, "model", eval->model.kind->name);
    cJSON_AddStringToObject(report, "rows", which_names[eval->which]);
    cJSON_AddNumberToObject(report, "row_count", quality->row_count);
    cJSON_AddNumberToObject(report, "features", eval->batch.id_count);
    cJSON_AddNumberToObject(report, "features_unknown", eval->batch.id_count - eval->known);
    if (eval->model.kind->predicts_ratings) {
        cJSON_AddNumberToObject(report, "rmse", quality->rmse);
    } else if (eval->model.kind->counts_topics) {
        cJSON_AddNumberToObject(report, "perplexity", quality->perplexity);
    } else {
        cJSON_AddNumberToObject(report, "auc", quality->auc);
        cJSON_AddNumberToObject(report, "logloss", quality->log_loss);
    }
    return weft_output_json("eval", report, true);
}

static bool print_text(const struct eval *eval, const struct weft_ml_quality *quality)
{
    printf("%u rows (%s), %u features, %u of them unknown to the model\n", quality->row_count,
           which_names[eval->which], eval->batch.id_count, eval->batch.id_count - eval->known);
    if (eval->model.kind->predicts_ratings) {
        printf("RMSE %.4f\n", quality->rmse);
    } else if (eval->model.kind->counts_topics) {
        printf("perplexity %.1f\n", quality->perplexity);
    } else {
        printf("AUC %.4f, log-loss %.4f\n", quality->auc, quality->log_loss);
    }
    return weft_output_close("eval", NULL, stdout, true);
}

static int evaluate(struct eval *eval)
{
    struct weft_ml_quality quality;
    if (eval->batch.row_count == 0) {
        return weft_cli_fail(eval->verb, "the data has no rows of --rows %s",
                             which_names[eval->which]);
    }
    weft_status status = weft_ml_model_evaluate(&eval->model, &eval->batch, eval->rows, &quality);
    if (status == WEFT_DATA) {
        return weft_cli_fail(eval->verb, "%s",
                             eval->model.kind->counts_topics
                                 ? "no document has a word to predict"
                                 : "all rows have the same class; the AUC is "
                                   "undefined");
    }
    if (status != WEFT_OK) {
        return weft_cli_fail(eval->verb, "out of memory");
    }
    return (eval->json ? print_json : print_text)(eval, &quality) ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_eval(int argc, char **argv)
{
    struct eval eval = {.verb = "eval", .which = ROWS_TEST};
    const struct weft_option options[] = {
        WEFT_EVAL_OPTIONS(&eval),
        {"json", NULL, "print a JSON object", WEFT_OPTION_FLAG, .value = &eval.json},
        {0},
    };
    const struct weft_command command = {
        .name = "eval",
        .summary = "evaluate a saved model on a data file",
        .description =
            "Prints AUC and log-loss; for a model of ratings, RMSE; for topics, the perplexity of\n"
            "every second word of a document given the others. Features that the model does not "
            "have\n"
            "count as absent. For a checkpoint directory, the newest checkpoint is read. A\n"
            "checkpoint of mf must be evaluated with the data file of the training, because it "
            "does\n"
            "not include the mean rating.",
        .example = "  weft train --model fm --save model.safetensors\n"
                   "  weft eval --model-file model.safetensors --data adult.data\n"
                   "  weft eval --model-file ckpt --model fm --format adult --data adult.data",
        .options = options,
    };
    return run(&eval, &command, argc, argv, evaluate);
}

/* ---- predict --------------------------------------------------------------------------------- */

static int predict(struct eval *eval)
{
    bool is_rating = eval->model.kind->predicts_ratings;
    const char *const inputs[] = {eval->model_path, eval->data_path};
    if (!weft_output_distinct(eval->verb, eval->output, inputs, WEFT_ARRAY_COUNT(inputs))) {
        return WEFT_EXIT_FAILED;
    }
    if (eval->model.kind->counts_topics) {
        return weft_cli_fail(eval->verb, "lda does not predict a number per document; use `weft "
                                         "eval` for its perplexity");
    }
    float *scores = calloc((size_t)eval->batch.row_count + 1, sizeof(*scores));
    if (scores == NULL) {
        return weft_cli_fail(eval->verb, "out of memory");
    }
    weft_ml_model_scores(&eval->model, &eval->batch, eval->rows, scores);
    FILE *out = weft_output_open(eval->output);
    for (uint32_t r = 0; out != NULL && r < eval->batch.row_count; r++) {
        double score = (double)scores[r];
        fprintf(out, "%.6g\n", is_rating ? score : weft_ml_sigmoid(score));
    }
    bool good = weft_output_close("predict", eval->output, out, out != NULL);
    free(scores);
    return good ? WEFT_EXIT_OK : WEFT_EXIT_FAILED;
}

int weft_cli_predict(int argc, char **argv)
{
    struct eval eval = {.verb = "predict", .which = ROWS_ALL};
    const struct weft_option options[] = {
        WEFT_EVAL_OPTIONS(&eval),
        {"output", "FILE", "output file", WEFT_OPTION_STRING, .value = &eval.output,
         .fallback = "standard output"},
        {0},
    };
    const struct weft_command command = {
        .name = "predict",
        .summary = "print a saved model's prediction for each example of a data file",
        .description =
          "Prints one line per row, in file order: the probability of label 1, or the rating. The\n"
          "rows need labels, but their values are not used. Features that the model does not have\n"
          "count as absent.",
        .example = "  weft predict --model-file model.safetensors --data adult.data --rows test",
        .options = options,
    };
    return run(&eval, &command, argc, argv, predict);
}
