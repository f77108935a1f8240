#include "cli/train/until.h"

#include "base/units.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

bool weft_until_is_set(const struct weft_until *until)
{
    return until->loss > 0.0F || until->auc > 0.0F || until->perplexity > 0.0F;
}

int weft_until_verify(const struct weft_command *command, const struct weft_until *until)
{
    if (until->auc >= 1.0F) {
        return weft_options_usage(command, "--until-auc %g is not allowed; it must be below 1",
                                  (double)until->auc);
    }
    if (until->timeout_s > 0 && !weft_until_is_set(until)) {
        return weft_options_usage(command, "--timeout-s requires --until-loss, --until-auc or "
                                           "--until-perplexity");
    }
    return WEFT_OPTIONS_RUN;
}

void weft_until_add(const struct weft_until *until, struct weft_args *args)
{
    if (until->loss > 0.0F) {
        weft_args_add(args, "--until-loss=%.9g", (double)until->loss);
    }
    if (until->auc > 0.0F) {
        weft_args_add(args, "--until-auc=%.9g", (double)until->auc);
    }
    if (until->perplexity > 0.0F) {
        weft_args_add(args, "--until-perplexity=%.9g", (double)until->perplexity);
    }
    weft_args_add(args, "--check-steps=%u", until->check_steps);
}

bool weft_until_is_check(const struct weft_until *until, uint32_t epoch, uint32_t step,
                         uint32_t steps)
{
    uint64_t done = (uint64_t)epoch * steps + step + 1;
    return weft_until_is_set(until) && (step + 1 == steps || done % until->check_steps == 0);
}

/* ---- the parent's side ----------------------------------------------------------------------- */

void weft_until_log_fini(struct weft_until_log *log)
{
    free(log->checks);
    *log = (struct weft_until_log){0};
}

void weft_until_log_go(struct weft_until_log *log, uint64_t now_ns)
{
    log->stopped = 0;
    log->went_ns = now_ns;
}

/* Make space for the check that the first stopped worker begins. */
static weft_status begin_check(struct weft_until_log *log, uint32_t step)
{
    if (log->count == log->capacity) {
        uint32_t capacity = log->capacity == 0 ? 64 : 2 * log->capacity;
        struct weft_until_check *checks = realloc(log->checks, capacity * sizeof(*checks));
        if (checks == NULL) {
            return WEFT_NOMEM;
        }
        log->checks = checks;
        log->capacity = capacity;
    }
    log->checks[log->count++] = (struct weft_until_check){.step = step};
    return WEFT_OK;
}

static weft_status add_stopped(struct weft_until_log *log, const cJSON *message, uint64_t at_ns)
{
    double step;
    double epoch;
    double steps;
    if (!weft_json_number_at(message, "step", &step) ||
        !weft_json_number_at(message, "epoch", &epoch) ||
        !weft_json_number_at(message, "steps", &steps)) {
        return WEFT_DATA;
    }
    if (log->stopped == 0) {
        weft_status status = begin_check(log, (uint32_t)step);
        if (status != WEFT_OK) {
            return status;
        }
    }
    log->stopped++;
    log->stopped_ns = at_ns;
    log->epoch = (uint32_t)epoch;
    log->steps_per_epoch = (uint32_t)steps;
    log->is_last = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(message, "last"));
    return log->checks[log->count - 1].step == (uint32_t)step ? WEFT_OK : WEFT_DATA;
}

static weft_status add_check(struct weft_until_log *log, const cJSON *message)
{
    if (log->tested + 1 != log->count) {
        return WEFT_DATA;
    }
    struct weft_until_check *check = &log->checks[log->tested++];
    log->training_ns += log->stopped_ns - log->went_ns;
    check->training_ns = log->training_ns;
    if (log->until->perplexity > 0.0F) {
        return weft_json_number_at(message, "test_perplexity", &check->test_perplexity) ? WEFT_OK
                                                                                        : WEFT_DATA;
    }
    return weft_json_number_at(message, "test_logloss", &check->test_logloss) &&
                   weft_json_number_at(message, "test_auc", &check->test_auc)
               ? WEFT_OK
               : WEFT_DATA;
}

weft_status weft_until_log_add(struct weft_until_log *log, const cJSON *message, uint64_t at_ns)
{
    const cJSON *event = cJSON_GetObjectItemCaseSensitive(message, "event");
    if (cJSON_IsString(event) && strcmp(event->valuestring, "stopped") == 0) {
        return add_stopped(log, message, at_ns);
    }
    return add_check(log, message);
}

bool weft_until_is_met(const struct weft_until_log *log)
{
    if (log->tested == 0) {
        return false;
    }
    const struct weft_until_check *check = &log->checks[log->tested - 1];
    /* Compare with the target rounded as the option was, to float: 0.3 must not mean 0.30000001. */
    const struct weft_until *until = log->until;
    return (until->loss <= 0.0F || (float)check->test_logloss <= until->loss) &&
           (until->auc <= 0.0F || (float)check->test_auc >= until->auc) &&
           (until->perplexity <= 0.0F || (float)check->test_perplexity <= until->perplexity);
}

bool weft_until_is_over(const struct weft_until_log *log)
{
    bool given_up =
        log->until->timeout_s > 0 && log->training_ns >= log->until->timeout_s * WEFT_NS_PER_S;
    return weft_until_is_met(log) || log->is_last || given_up;
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)WEFT_NS_PER_S;
}

void weft_until_log_show(const struct weft_until_log *log, FILE *out)
{
    const struct weft_until_check *check = &log->checks[log->tested - 1];
    fprintf(out, "step %5u  %9.3f s  ", check->step, seconds(check->training_ns));
    if (log->until->perplexity > 0.0F) {
        fprintf(out, "test perplexity %.1f", check->test_perplexity);
    } else {
        fprintf(out, "test loss %.4f  AUC %.4f", check->test_logloss, check->test_auc);
    }
    fprintf(out, "%s\n", weft_until_is_met(log) ? "  reached" : "");
    fflush(out);
}

static void add_target(cJSON *object, const char *name, float value)
{
    if (value > 0.0F) {
        weft_json_add_float(object, name, value);
    } else {
        cJSON_AddNullToObject(object, name);
    }
}

/* Complete epochs plus the fraction of the last. */
static double epochs_of(const struct weft_until_log *log)
{
    return log->tested > 0 ? (double)log->checks[log->tested - 1].step / log->steps_per_epoch : 0;
}

cJSON *weft_until_log_report(const struct weft_until_log *log)
{
    if (!weft_until_is_set(log->until)) {
        return cJSON_CreateNull();
    }
    cJSON *object = cJSON_CreateObject();
    add_target(object, "loss", log->until->loss);
    add_target(object, "auc", log->until->auc);
    add_target(object, "perplexity", log->until->perplexity);
    cJSON_AddNumberToObject(object, "check_steps", log->until->check_steps);
    cJSON_AddBoolToObject(object, "reached", weft_until_is_met(log));
    cJSON_AddNumberToObject(object, "steps",
                            log->tested > 0 ? log->checks[log->tested - 1].step : 0);
    cJSON_AddNumberToObject(object, "epochs", epochs_of(log));
    cJSON_AddNumberToObject(object, "training_s", seconds(log->training_ns));
    cJSON *checks = cJSON_AddArrayToObject(object, "checks");
    for (uint32_t i = 0; i < log->tested; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToArray(checks, item);
        cJSON_AddNumberToObject(item, "step", log->checks[i].step);
        cJSON_AddNumberToObject(item, "training_s", seconds(log->checks[i].training_ns));
        if (log->until->perplexity > 0.0F) {
            cJSON_AddNumberToObject(item, "test_perplexity", log->checks[i].test_perplexity);
            continue;
        }
        cJSON_AddNumberToObject(item, "test_logloss", log->checks[i].test_logloss);
        cJSON_AddNumberToObject(item, "test_auc", log->checks[i].test_auc);
    }
    return object;
}
