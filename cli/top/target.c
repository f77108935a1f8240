#include "cli/top/target.h"

#include "cli/output.h"
#include "io/clock.h"
#include "io/http_get.h"
#include "io/resolve.h"
#include "ml/number.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_number(const char *text)
{
    uint64_t value;
    return weft_ml_number_u64(text, strlen(text), &value);
}

weft_status weft_top_target_init(struct weft_top_target *target, const char *text)
{
    *target = (struct weft_top_target){.is_gone = true, .why = "not scraped yet"};
    snprintf(target->name, sizeof(target->name), "%s", text);
    if (strchr(text, '/') != NULL || (strchr(text, ':') == NULL && !is_number(text))) {
        target->file = text;
        return WEFT_OK;
    }
    char host[WEFT_METRICS_HOST_BYTES], numeric[WEFT_RESOLVE_TEXT_BYTES];
    if (!weft_metrics_address(text, host, &target->port) || target->port == 0 ||
        weft_resolve(host, numeric, NULL) != WEFT_OK) {
        return WEFT_INVALID;
    }
    snprintf(target->host, sizeof(target->host), "%s", numeric);
    bool v6 = strchr(host, ':') != NULL;
    snprintf(target->name, sizeof(target->name), "%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             target->port);
    return WEFT_OK;
}

bool weft_top_target_same(const struct weft_top_target *a, const struct weft_top_target *b)
{
    if (a->file != NULL || b->file != NULL) {
        return strcmp(a->name, b->name) == 0;
    }
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

void weft_top_target_fini(struct weft_top_target *target)
{
    weft_samples_fini(&target->now);
    weft_samples_fini(&target->before);
}

/* ---- a scrape -------------------------------------------------------------------------------- */

static weft_status fetch(const struct weft_top_target *target, const char *path,
                         uint64_t timeout_ns, bool (*stop)(void), char **text_p,
                         struct weft_error *error)
{
    size_t bytes;
    if (target->file == NULL) {
        return weft_http_get_unless(target->host, target->port, path, timeout_ns, stop, text_p,
                                    error);
    }
    weft_status status = weft_file_read(target->file, WEFT_HTTP_GET_BYTES_MAX, text_p, &bytes);
    return status == WEFT_OK ? WEFT_OK : weft_fail(error, status, "%s", strerror(errno));
}

static void take_hot(struct weft_top_target *target, const cJSON *object)
{
    const cJSON *row, *updates = cJSON_GetObjectItemCaseSensitive(object, "updates");
    target->hot_count = 0;
    target->hot_updates = cJSON_IsNumber(updates) ? updates->valuedouble : 0;
    cJSON_ArrayForEach(row, cJSON_GetObjectItemCaseSensitive(object, "rows"))
    {
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(row, "id");
        const cJSON *count = cJSON_GetObjectItemCaseSensitive(row, "updates");
        if (target->hot_count < WEFT_TOP_HOT_MAX && cJSON_IsString(id) && cJSON_IsNumber(count)) {
            struct weft_top_hot *hot = &target->hot[target->hot_count++];
            snprintf(hot->id, sizeof(hot->id), "%s", id->valuestring);
            hot->updates = count->valuedouble;
        }
    }
}

/* For a server; the samples determine which target is one. */
static void poll_hot(struct weft_top_target *target, uint64_t timeout_ns, bool (*stop)(void))
{
    char *text = NULL;
    if (target->file != NULL || strcmp(target->role, "server") != 0 ||
        fetch(target, "/hot?table=0&k=10", timeout_ns, stop, &text, NULL) != WEFT_OK) {
        return;
    }
    cJSON *object = cJSON_Parse(text);
    take_hot(target, object);
    cJSON_Delete(object);
    free(text);
}

/* A process restarted at the same address counts from 0; its predecessor's samples are not
 * comparable. */
static bool is_same_process(const struct weft_samples *a, const struct weft_samples *b)
{
    return weft_samples_sum(a, "process_start_time_seconds", NULL) ==
           weft_samples_sum(b, "process_start_time_seconds", NULL);
}

void weft_top_target_poll(struct weft_top_target *target, uint64_t timeout_ns, bool (*stop)(void))
{
    char *text = NULL;
    struct weft_samples samples = {0};
    struct weft_error error = {.text = "no metrics of weft"};
    weft_status status = fetch(target, "/metrics", timeout_ns, stop, &text, &error);
    if (status == WEFT_STATE) {
        return;
    }
    status = status == WEFT_OK ? weft_samples_parse(text, &samples) : status;
    target->is_gone = status != WEFT_OK;
    if (status != WEFT_OK) {
        snprintf(target->why, sizeof(target->why), "%.90s", error.text);
        return;
    }
    weft_samples_fini(&target->before);
    if (target->now.count > 0 && is_same_process(&target->now, &samples)) {
        target->before = target->now;
        target->before_ns = target->now_ns;
    } else {
        weft_samples_fini(&target->now);
    }
    target->now = samples;
    target->now_ns = weft_clock_now_ns();
    (void)weft_samples_label(&samples, "weft_build_info", "role", target->role,
                             sizeof(target->role));
    poll_hot(target, timeout_ns, stop);
}

/* ---- figures --------------------------------------------------------------------------------- */

static double growth(const struct weft_top_target *target, const char *name, const char *with)
{
    double now = weft_samples_sum(&target->now, name, with);
    double before = weft_samples_sum(&target->before, name, with);
    return now > before ? now - before : 0;
}

double weft_top_rate(const struct weft_top_target *target, const char *name, const char *with)
{
    double seconds = target->before.count > 0
                         ? (double)(target->now_ns - target->before_ns) / 1e9
                         : weft_samples_sum(&target->now, "weft_uptime_seconds", NULL);
    return seconds > 0 ? growth(target, name, with) / seconds : 0;
}
