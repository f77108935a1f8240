/* Tables: converts options to a specification, which must be the same on all shards and workers. */
#include "api/ps_internal.h"

#include "base/assert.h"
#include "io/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

static weft_status unknown_optimizer(struct weft_ps *ps, const char *name)
{
    char known[160] = "";
    for (uint32_t i = 0; i < WEFT_OPTIMIZERS_COUNT; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s\"%s\"", i > 0 ? ", " : "",
                 weft_optimizers[i]->name);
    }
    return weft_fail(&ps->worker.error, WEFT_INVALID,
                     "optimizer \"%.40s\" is not known; choose one of %s",
                     name != NULL ? name : "(NULL)", known);
}

/* The index of `text` in a list of names, which is its number on the wire; NULL is the first. */
static weft_status word_of(struct weft_ps *ps, const char *field, const char *text,
                           const char *const words[4], uint8_t *number_p)
{
    for (uint8_t i = 0; i < 4 && words[i] != NULL; i++) {
        if (text == NULL || strcmp(text, words[i]) == 0) {
            *number_p = i;
            return WEFT_OK;
        }
    }
    return weft_fail(&ps->worker.error, WEFT_INVALID,
                     "%s is \"%.40s\"; choose one of \"%s\", \"%s\", \"%s\"%s%s%s", field, text,
                     words[0], words[1], words[2], words[3] != NULL ? ", \"" : "",
                     words[3] != NULL ? words[3] : "", words[3] != NULL ? "\"" : "");
}

/* Call it after kind and mode are known: the encoding of the average depends on them. */
static weft_status read_average(struct weft_ps *ps, const char *text,
                                struct weft_table_spec *spec_p)
{
    static const char *const words[] = {[WEFT_AVERAGE_WORKERS] = "workers",
                                        [WEFT_AVERAGE_CONTRIBUTORS] = "contributors",
                                        [WEFT_AVERAGE_NONE] = "none"};
    for (enum weft_table_average a = WEFT_AVERAGE_WORKERS; a <= WEFT_AVERAGE_NONE; a++) {
        if (text != NULL && strcmp(text, words[a]) == 0) {
            spec_p->average = weft_table_average_of(spec_p, a);
            return WEFT_OK;
        }
    }
    return text == NULL
               ? WEFT_OK
               : weft_fail(&ps->worker.error, WEFT_INVALID,
                           "average is \"%.40s\"; choose \"workers\", \"contributors\" or \"none\"",
                           text);
}

/* Pushes may have any of the types, replies to pulls all but the last. */
static weft_status read_value_type(struct weft_ps *ps, bool is_push, const char *text,
                                   uint8_t *type_p)
{
    static const char *const types[] = {
        [WEFT_VALUE_FLOAT32] = "float32",
        [WEFT_VALUE_BF16] = "bf16",
        [WEFT_VALUE_INT8] = "int8",
    };
    const uint8_t count = is_push ? WEFT_VALUE_INT8 + 1 : WEFT_VALUE_BF16 + 1;
    for (uint8_t type = 0; text != NULL && type < count; type++) {
        if (strcmp(text, types[type]) == 0) {
            *type_p = type;
            return WEFT_OK;
        }
    }
    if (text != NULL) {
        return weft_fail(&ps->worker.error, WEFT_INVALID, "%s is \"%.40s\"; choose %s",
                         is_push ? "value_type" : "pull_value_type", text,
                         is_push ? "\"float32\", \"bf16\" or \"int8\""
                                 : "\"float32\" or \"bf16\"; int8 is for gradients alone");
    }
    *type_p = WEFT_VALUE_FLOAT32;
    return WEFT_OK;
}

static weft_status read_words(struct weft_ps *ps, const struct weft_table_options *o,
                              struct weft_table_spec *spec_p)
{
    static const char *const admissions[4] = {
        [WEFT_ADMISSION_ALL] = "all",
        [WEFT_ADMISSION_COUNTER] = "counter",
        [WEFT_ADMISSION_BLOOM] = "bloom",
    };
    static const char *const evictions[4] = {
        [WEFT_EVICTION_NONE] = "none",
        [WEFT_EVICTION_TTL] = "ttl",
        [WEFT_EVICTION_LRU] = "lru",
        [WEFT_EVICTION_L2] = "l2",
    };
    static const char *const policies[4] = {
        [WEFT_NOT_FINITE_REJECT] = "reject",
        [WEFT_NOT_FINITE_CLIP] = "clip",
        [WEFT_NOT_FINITE_DROP] = "drop",
    };
    weft_status status = word_of(ps, "admission", o->admission, admissions, &spec_p->admission);
    if (status == WEFT_OK) {
        status = word_of(ps, "eviction", o->eviction, evictions, &spec_p->eviction);
    }
    if (status == WEFT_OK) {
        status = word_of(ps, "not_finite", o->not_finite, policies, &spec_p->not_finite);
    }
    if (status == WEFT_OK) {
        status = weft_api_ps_consistency_parse(o->consistency, &spec_p->mode, &spec_p->staleness,
                                               &ps->worker.error);
    }
    if (status == WEFT_OK && ps->has_scheduler && spec_p->mode != ps->scheduled_mode) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "consistency is \"%.40s\", which differs from config.consistency; with a "
                         "scheduler all tables must have that of the configuration",
                         o->consistency != NULL ? o->consistency : "bsp");
    }
    status = status == WEFT_OK ? read_average(ps, o->average, spec_p) : status;
    if (status == WEFT_OK) {
        status = read_value_type(ps, true, o->value_type, &spec_p->push_values);
    }
    return status == WEFT_OK ? read_value_type(ps, false, o->pull_value_type, &spec_p->pull_values)
                             : status;
}

static weft_status check_numbers(struct weft_ps *ps, const struct weft_table_options *o)
{
    const struct {
        const char *name;
        uint64_t value;
        uint64_t min;
        uint64_t max;
    } fields[] = {
        {"number", o->number, 0, ps->tables_max - 1},
        {"dim", o->dim, 1, ps->dim_max},
        {"workers", o->workers, 0, WEFT_RPC_WORKERS_MAX},
        {"last_values_max", o->last_values_max, 0, WEFT_ROW_STORE_MAX},
        {"feedback_rows", o->feedback_rows, 0, WEFT_ROW_STORE_MAX},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(fields); i++) {
        if (fields[i].value < fields[i].min || fields[i].value > fields[i].max) {
            return weft_fail(&ps->worker.error, WEFT_INVALID,
                             "%s is %llu; it must be from %llu to %llu (tables_max and dim_max of "
                             "the config limit number and dim)",
                             fields[i].name, (unsigned long long)fields[i].value,
                             (unsigned long long)fields[i].min, (unsigned long long)fields[i].max);
        }
    }
    const struct {
        const char *name;
        float value;
    } floats[] = {
        {"learning_rate", o->learning_rate},
        {"epsilon", o->epsilon},
        {"accumulator", o->accumulator},
        {"beta1", o->beta1},
        {"beta2", o->beta2},
        {"l1", o->l1},
        {"l2", o->l2},
        {"init_scale", o->init_scale},
        {"clip", o->clip},
    };
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(floats); i++) {
        if (!isfinite(floats[i].value)) {
            return weft_fail(&ps->worker.error, WEFT_INVALID, "%s is not a finite number",
                             floats[i].name);
        }
    }
    return WEFT_OK;
}

static weft_status options_to_spec(struct weft_ps *ps, const struct weft_table_options *o,
                                   struct weft_table_spec *spec_p)
{
    const struct weft_optimizer *optimizer =
        o->optimizer != NULL ? weft_optimizer_find(o->optimizer) : NULL;
    if (optimizer == NULL) {
        return unknown_optimizer(ps, o->optimizer);
    }
    weft_status status = check_numbers(ps, o);
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_table_spec spec = {
        .table = (uint16_t)o->number,
        .dim = o->dim,
        .optimizer = optimizer->kind,
        .workers = (uint16_t)(o->workers > 0 ? o->workers : ps->workers),
        .learning_rate = o->learning_rate,
        .epsilon = o->epsilon,
        .accumulator = o->accumulator,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .l1 = o->l1,
        .l2 = o->l2,
        .init_scale = o->init_scale,
        .init_skip = o->init_skip,
        .init_seed = o->init_seed,
        .kind = o->length > 0 ? WEFT_TABLE_DENSE : WEFT_TABLE_SPARSE,
        .clip = o->clip,
        .admission_count = o->admission_count,
        .admission_cells = o->admission_cells,
        .ttl = o->ttl,
        .rows_max = o->rows_max,
        .bytes_max = o->bytes_max,
        .length = o->length,
    };
    status = read_words(ps, o, &spec);
    if (status != WEFT_OK) {
        return status;
    }
    if (!weft_table_spec_valid(&spec)) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "the options do not fit each other: one is out of range (docs/TABLES.md), "
                         "or is not 0 although the optimizer \"%s\" or another option does not "
                         "use it; begin with weft_table_options_init(..., \"%s\")",
                         o->optimizer, o->optimizer);
    }
    *spec_p = spec;
    return WEFT_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Allocate memory for rows of the table that this worker keeps; *memory_p is NULL if there are
 * none. */
static weft_status keep_rows(struct weft_ps *ps, const char *field, uint32_t rows, uint32_t dim,
                             void **memory_p)
{
    free(*memory_p);
    *memory_p = rows > 0 ? malloc(weft_row_store_bytes(rows, dim)) : NULL;
    if (rows > 0 && *memory_p == NULL) {
        return weft_fail(&ps->worker.error, WEFT_NOMEM,
                         "no memory for %s of %u rows of %u floats; lower it", field, rows, dim);
    }
    return WEFT_OK;
}

static uint32_t feedback_rows(const struct weft_table_options *o,
                              const struct weft_table_spec *spec)
{
    return o->feedback_rows > 0 ? o->feedback_rows : weft_ps_feedback_rows(spec);
}

static weft_status keep(struct weft_ps *ps, struct weft_ps_table *table,
                        const struct weft_table_options *o, const struct weft_table_spec *spec)
{
    weft_status status = keep_rows(ps, "last_values_max", o->last_values_max, o->dim, &table->last);
    return status != WEFT_OK
               ? status
               : keep_rows(ps, "feedback_rows", feedback_rows(o, spec), o->dim, &table->kept);
}

/* Pass the memory to the client, once it knows the table. */
static void lend(struct weft_ps *ps, const struct weft_ps_table *table,
                 const struct weft_table_options *o)
{
    weft_status status = WEFT_OK;
    uint16_t number = table->spec.table;
    uint32_t kept = feedback_rows(o, &table->spec);
    if (o->last_values_max > 0) {
        status =
            weft_ps_client_remember(ps->worker.client, number, table->last, o->last_values_max);
    }
    if (status == WEFT_OK && kept > 0) {
        status = weft_ps_client_feedback(ps->worker.client, number, table->kept, kept);
    }
    WEFT_ASSERT(status == WEFT_OK);
}

void weft_api_ps_tables_free(struct weft_ps *ps)
{
    for (uint32_t t = 0; ps->tables != NULL && t < ps->tables_max; t++) {
        free(ps->tables[t].last);
        free(ps->tables[t].kept);
    }
}

size_t weft_table_residuals(const struct weft_ps_table *table, uint64_t *ids_p, float *rows_p,
                            size_t max)
{
    return weft_ps_client_kept(table->ps->worker.client, table->spec.table, ids_p, rows_p,
                               (uint32_t)weft_min_u64(max, UINT32_MAX));
}

static weft_status begin(struct weft_ps *ps, struct weft_ps_table *table,
                         const struct weft_table_options *o, const struct weft_table_spec *spec)
{
    uint64_t end_ns = 0;
    weft_status waited = WEFT_OK, status = keep(ps, table, o, spec);
    if (status != WEFT_OK) {
        return status;
    }
    while ((status = weft_ps_table_open(ps->worker.client, spec, weft_clock_now_ns(),
                                        &table->op)) == WEFT_AGAIN &&
           ps->worker.any_away && waited == WEFT_OK) {
        waited = weft_api_ps_wait_and_retry(ps, WEFT_NEVER, &end_ns);
    }
    if (waited != WEFT_OK && status == WEFT_AGAIN) {
        return waited;
    }
    if (status == WEFT_AGAIN) {
        return weft_fail(&ps->worker.error, status,
                         "%u operations are in progress; complete one with weft_wait, then open "
                         "the table",
                         ps->ops_max);
    }
    if (status != WEFT_OK) {
        return weft_fail(&ps->worker.error, status, "opening table %u: %s", spec->table,
                         weft_status_text(status));
    }
    table->ps = ps;
    table->spec = *spec;
    table->deadline_ns = o->deadline_ns > 0 ? o->deadline_ns : WEFT_NEVER;
    table->opening = true;
    lend(ps, table, o);
    if (o->name != NULL) {
        snprintf(table->name, sizeof(table->name), "%s", o->name);
    } else {
        snprintf(table->name, sizeof(table->name), "table %u", spec->table);
    }
    return WEFT_OK;
}

/* A connected server that does not accept the request has no worker of this rank. */
static weft_status no_answer(struct weft_ps *ps)
{
    return weft_fail(&ps->worker.error, WEFT_TIMEOUT,
                     "the servers are connected, but did not reply to worker %u; start them with "
                     "--workers above the highest rank (%u workers are configured here)",
                     ps->worker.rank, ps->workers);
}

static weft_status finish(struct weft_ps *ps, struct weft_ps_table *table)
{
    uint64_t patience_ns = weft_min_u64(ps->connect_timeout_ns, ps->call_timeout_ns);
    uint64_t end_ns = weft_time_add(weft_clock_now_ns(), patience_ns);
    struct weft_ps_result result;
    while (!weft_ps_op_done(ps->worker.client, table->op, &result)) {
        uint64_t now_ns = weft_clock_now_ns();
        uint32_t shard;
        if (weft_worker_is_down(&ps->worker, &shard)) {
            return weft_worker_gone(&ps->worker, shard);
        }
        if (now_ns >= end_ns) {
            return no_answer(ps);
        }
        weft_api_ps_step(ps, end_ns - now_ns);
    }
    weft_ps_op_release(ps->worker.client, table->op);
    table->opening = false;
    if (result.status != WEFT_OK) {
        char what[WEFT_PS_NAME_BYTES + 16];
        snprintf(what, sizeof(what), "opening %s", table->name);
        return weft_worker_refused(&ps->worker, what, &result);
    }
    table->open = true;
    return WEFT_OK;
}

weft_status weft_table_open(struct weft_ps *ps, const struct weft_table_options *options,
                            struct weft_ps_table **table_p)
{
    if (options == NULL || table_p == NULL) {
        return weft_fail(&ps->worker.error, WEFT_INVALID,
                         "options or table_p is NULL; fill options with "
                         "weft_table_options_init");
    }
    struct weft_table_options o;
    struct weft_table_spec spec;
    weft_status status = weft_api_ps_options_read(options, &o, &ps->worker.error);
    if (status == WEFT_OK && o.reserved != 0) {
        return weft_fail(&ps->worker.error, WEFT_UNSUPPORTED,
                         "options.reserved is not 0; begin with weft_table_options_init");
    }
    if (status == WEFT_OK) {
        status = options_to_spec(ps, &o, &spec);
    }
    if (status != WEFT_OK) {
        return status;
    }
    struct weft_ps_table *table = &ps->tables[spec.table];
    bool again = table->opening && weft_table_spec_equal(&table->spec, &spec);
    if (table->open || (table->opening && !again)) {
        return weft_fail(&ps->worker.error, WEFT_EXISTS,
                         "table %u is already open, as \"%s\"; use that, or another number",
                         spec.table, table->name);
    }
    status = again ? WEFT_OK : begin(ps, table, &o, &spec);
    if (status == WEFT_OK) {
        status = finish(ps, table);
    }
    if (status == WEFT_OK) {
        *table_p = table;
    }
    return status;
}
