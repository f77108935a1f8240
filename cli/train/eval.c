/* `weft eval` and `weft predict`: a saved model, or the newest checkpoint of a directory, on a data
 * file. No servers: the model is read into this process (ckpt/model.h). */
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
    const char *format_name; /* NULL = the model's */
    const struct weft_ml_model_kind *kind; /* of a checkpoint; NULL = not said */
    bool is_checkpoint;
    uint32_t which; /* rows */
    const char *output; /* predict; NULL = standard output */
    bool json;          /* eval */

    struct weft_ckpt_model file;
    struct weft_ml_model model;           /* that it is */
    const struct weft_ml_format *format; /* of its data; NULL = not known */
    struct weft_ml_dataset dataset;
    struct weft_ml_batch batch; /* the rows asked for */
    float *rows;                /* (weft_ml_model_rows of the batch, dim) */
    uint32_t known;             /* of the batch's ids, by the model */
};

/* The rows of both tables of options. */
#define WEFT_EVAL_OPTIONS(e)                                                                       \
    {"model-file", "PATH", "what `weft train --save` wrote, or a directory of checkpoints",        \
     WEFT_OPTION_STRING, .value = &(e)->model_path, .fallback = ""},                               \
    {"model", "NAME", "of a checkpoint: lr, fm, mf, mlp or lda", WEFT_OPTION_CUSTOM, .value = &(e)->kind,    \
     .parse = weft_job_parse_model, .fallback = "lr; a saved model knows"},                        \
    {"data", "PATH", "data file, found as `weft train` finds it", WEFT_OPTION_STRING,              \
     .value = &(e)->data, .fallback = ""},                                                         \
    {"format", "NAME", "of the data", WEFT_OPTION_CUSTOM, .value = &(e)->format_name,              \
     .parse = weft_job_parse_format, .fallback = "the one that the model was trained on"},         \
    {"rows", "WHICH", "test = those that training leaves out, train, or all", WEFT_OPTION_CHOICE,  \
     .value = &(e)->which, .choices = which_names}

/* ---- reading --------------------------------------------------------------------------------- */

static weft_status check_format(const struct weft_ml_model_kind *kind,
                                const struct weft_ml_dataset *dataset, struct weft_error *error)
{
    if (kind->predicts_ratings && !dataset->has_ratings) {
        return weft_fail(error, WEFT_DATA,
                         "the model predicts ratings, and the format of the data has none");
    }
    return kind->counts_topics == dataset->has_counts
               ? WEFT_OK
               : weft_fail(error, WEFT_DATA,
                           "topics (lda) go with counts of words (docword), and nothing else does");
}

/* The rows of a dense model in a checkpoint are numbered: those of the features of the data that it
 * was trained on, then those of the output. */
static weft_status name_dense_rows(struct eval *eval, struct weft_error *error)
{
    const struct weft_ml_dataset *set = &eval->dataset;
    if (eval->file.count != set->feature_count + WEFT_ML_OUTPUT_ROWS) {
        return weft_fail(error, WEFT_DATA,
                         "the checkpoint has %u rows, and a model of this data has %u: --data must "
                         "be the file of the training",
                         eval->file.count, set->feature_count + WEFT_ML_OUTPUT_ROWS);
    }
    for (uint32_t i = 0; i < eval->file.count; i++) {
        eval->file.ids[i] = i < set->feature_count ? set->feature_ids[i]
                                                   : WEFT_ML_OUTPUT_ID + i - set->feature_count;
    }
    return WEFT_OK;
}

/* A checkpoint has rows, and nothing that says what they are. */
static weft_status name_model(struct eval *eval, struct weft_error *error)
{
    uint32_t dim = eval->file.dim;
    const struct weft_ml_model_kind *kind = eval->kind;
    if (kind == NULL) {
        (void)!weft_ml_model_find("lr", NULL, &kind);
    }
    struct weft_ml_model_settings settings = kind->settings;
    if (!weft_ml_model_factors(kind, dim, &settings.factors)) {
        return weft_cli_fail(eval->verb,
                             "the rows of the checkpoint have %u floats, which is no %s; say which "
                             "model it is: --model",
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
    char path[WEFT_ML_PATH_BYTES];
    if (eval->format_name != NULL) {
        (void)!weft_ml_format_find(eval->format_name, NULL, &format); /* parsed: it is known */
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

/* What the model knows of the batch. */
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

/* The rows asked for, in the order of the file, as one batch, and what the model knows of it. */
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
        fprintf(stderr, "weft: passed over: %s\n", text);
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
                         "%.200s: this release has no such model, or no such format",
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
                         "a checkpoint does not say of which data it is: --format");
    }
    if (!eval->is_checkpoint && eval->kind != NULL) {
        return weft_fail(error, WEFT_DATA,
                         "--model goes with a checkpoint; a saved model knows what it is");
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
        return weft_options_usage(command, "--model-file is missing: which model?");
    }
    if (eval->data == NULL) {
        return weft_options_usage(command, "--data is missing: on which data?");
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
        return weft_cli_fail(eval->verb, "there are no such rows in the data");
    }
    weft_status status =
        weft_ml_model_evaluate(&eval->model, &eval->batch, eval->rows, &quality);
    if (status == WEFT_DATA) {
        return weft_cli_fail(eval->verb, "%s", eval->model.kind->counts_topics
                                                   ? "no document has a word to predict"
                                                   : "all rows are of one class: there is no AUC");
    }
    if (status != WEFT_OK) {
        return weft_cli_fail(eval->verb, "out of memory");
    }
    return (eval->json ? print_json : print_text)(eval, &quality) ? WEFT_EXIT_OK
                                                                 : WEFT_EXIT_FAILED;
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
            "AUC and log-loss, for a model of ratings the RMSE, for topics the perplexity of every\n"
            "second word of a document given the others. Features that the model does not\n"
            "know count as absent. Of a directory of checkpoints the newest is read; its data are\n"
            "to be those of the training where the model is mf: the mean rating is not in it.",
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
    if (eval->model.kind->counts_topics) {
        return weft_cli_fail(eval->verb, "lda predicts no number for a document; `weft eval` says how "
                                         "well it predicts words");
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
        {"output", "FILE", "write here", WEFT_OPTION_STRING, .value = &eval.output,
         .fallback = "standard output"},
        {0},
    };
    const struct weft_command command = {
        .name = "predict",
        .summary = "print a saved model's prediction for each example of a data file",
        .description =
            "One line a row, in the order of the file: the probability of label 1, or the rating.\n"
            "The rows need labels, which are not used (any that the format admits will do).\n"
            "Features that the model does not know count as absent.",
        .example = "  weft predict --model-file model.safetensors --data adult.data --rows test",
        .options = options,
    };
    return run(&eval, &command, argc, argv, predict);
}
