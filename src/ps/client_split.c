/* Pushes and pulls: checks lists and splits them into parts by shard and by RPC size. */
#include "ps/client_internal.h"

#include "base/bits.h"
#include "ps/aggregate.h"

#include <string.h>

/* Position of a row among those of its shard. */
enum { SORT_CRITICAL, SORT_FIRST, SORT_REST, SORT_KINDS };

static uint32_t sort_kind(const struct weft_ps_client *client, uint32_t row)
{
    return weft_bits_test(client->sort_critical, row) ? SORT_CRITICAL
           : weft_bits_test(client->sort_first, row)  ? SORT_FIRST
                                                      : SORT_REST;
}

/* Mark the rows of a pull that were missed the last time, and the last two times. Before a
 * prefetching pull the outstanding pull may miss a row again, which is not known yet. */
static void sort_look(struct weft_ps_client *client, const struct weft_ps_list *list, bool is_pull)
{
    const struct weft_ps_missed *missed = &client->tables[list->table].missed;
    uint32_t n = (uint32_t)list->n;
    size_t bytes = WEFT_BITS_WORDS((size_t)n) * sizeof(uint64_t);
    memset(client->sort_first, 0, bytes);
    memset(client->sort_critical, 0, bytes);
    for (uint32_t i = 0; is_pull && missed->count > 0 && i < n; i++) {
        uint64_t id = ps_list_id(list, i);
        if (weft_ps_missed_has(missed, id)) {
            weft_bits_set(client->sort_first, i);
            client->counters.missed_first++;
        }
        if (weft_ps_missed_twice(missed, id) ||
            (list->ahead > 0 && weft_ps_missed_has(missed, id))) {
            weft_bits_set(client->sort_critical, i);
        }
    }
}

/* Costs a hash or a division per row, unless there is only one shard. */
static uint32_t shard_of(const struct weft_table_spec *spec, const struct weft_ps_list *list,
                         uint32_t i, uint32_t shards)
{
    return shards == 1 ? 0 : weft_table_spec_shard(spec, ps_list_id(list, i), shards);
}

/* Mark the cold rows, which are sent to the shard. */
static void sort_cold(struct weft_ps_client *client, const struct weft_ps_list *list)
{
    uint32_t shards = client->config.shards, n = (uint32_t)list->n;
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    memset(client->sort_cold, 0, WEFT_BITS_WORDS((size_t)n) * sizeof(uint64_t));
    for (uint32_t i = 0; i < n; i++) {
        uint32_t shard = shard_of(spec, list, i, shards);
        if (weft_ps_hot_is_cold(client, list->table, shard, ps_list_id(list, i))) {
            weft_bits_set(client->sort_cold, i);
        }
    }
}

/* A group of rows becomes requests of its own. A group is a shard's rows or, if split, its hot or
 * its cold rows, or one of its pieces. */
static uint32_t group_of(const struct weft_ps_client *client, const struct weft_ps_list *list,
                         uint32_t i, uint32_t ways)
{
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    uint32_t shard = shard_of(spec, list, i, client->config.shards);
    if (list->pieces > 1) {
        return ways * shard + weft_ps_piece_of(spec, list->pieces, ps_list_id(list, i));
    }
    return ways == 1 ? shard : 2 * shard + weft_bits_test(client->sort_cold, i);
}

/* Counting sort of rows by group. Within a group, rows missed twice in a row are first, then other
 * missed rows. Afterwards the rows of group g are order[sort_start[3g] .. sort_start[3g + 3]),
 * those of them that were missed twice end at sort_start[3g + 1], and those that were missed at
 * sort_start[3g + 2]. */
static void sort_rows(struct weft_ps_client *client, const struct weft_ps_list *list, bool is_pull,
                      uint32_t ways, uint32_t *order)
{
    uint32_t groups = ways * client->config.shards, n = (uint32_t)list->n;
    uint32_t *start = client->sort_start;
    memset(start, 0, sizeof(*start) * (groups * SORT_KINDS + 1));
    sort_look(client, list, is_pull);
    if (list->splits) {
        sort_cold(client, list);
    }
    for (uint32_t i = 0; i < n; i++) {
        start[group_of(client, list, i, ways) * SORT_KINDS + sort_kind(client, i)]++;
    }
    uint32_t sum = 0;
    for (uint32_t k = 0; k <= groups * SORT_KINDS; k++) {
        uint32_t count = start[k];
        start[k] = sum;
        sum += count;
    }
    for (uint32_t i = 0; i < n; i++) {
        order[start[group_of(client, list, i, ways) * SORT_KINDS + sort_kind(client, i)]++] = i;
    }
    /* Placing rows advanced each start to its end, which is the next start. */
    for (uint32_t k = groups * SORT_KINDS; k > 0; k--) {
        start[k] = start[k - 1];
    }
    start[0] = 0;
}

/* Bytes per id in messages: those of a u32 if all ids of the list fit it. */
static uint8_t id_bytes_of(const struct weft_ps_list *list)
{
    const uint64_t *ids = list->ids;
    uint32_t n = ids != NULL ? (uint32_t)list->n : 0;
    uint64_t all = ids == NULL ? list->first + list->n : 0;
    for (uint32_t i = 0; i < n; i++) {
        all |= ids[i];
    }
    return all <= UINT32_MAX ? WEFT_RPC_ID_NARROW : WEFT_RPC_ID_WIDE;
}

/* True: every id is within the dense table. */
static bool ids_within(const struct weft_table_spec *spec, const struct weft_ps_list *list)
{
    uint64_t rows = weft_table_dense_rows(spec);
    if (list->ids == NULL) {
        return list->first <= rows && list->n <= rows - list->first;
    }
    for (uint32_t i = 0, n = (uint32_t)list->n; i < n; i++) {
        if (list->ids[i] >= rows) {
            return false;
        }
    }
    return true;
}

static weft_status list_check(const struct weft_ps_client *client, struct weft_ps_list *list)
{
    if (list->table >= client->config.tables_max ||
        client->tables[list->table].state != TABLE_OPEN) {
        return WEFT_STATE;
    }
    const struct weft_table_spec *spec = &client->tables[list->table].spec;
    bool dense = spec->kind == WEFT_TABLE_DENSE;
    list->floats = (uint64_t)list->n * spec->dim;
    if (list->n > client->config.rows_per_op_max ||
        list->ahead > (spec->mode == WEFT_TABLE_BSP ? 1 : 0) ||
        (dense ? !ids_within(spec, list) : list->ids == NULL && list->n > 0)) {
        return WEFT_INVALID;
    }
    if (dense && list->ids == NULL) {
        list->floats = weft_min_u64(list->floats, spec->length - list->first * spec->dim);
    }
    list->id_bytes = id_bytes_of(list);
    return WEFT_OK;
}

bool weft_ps_push_fits(const struct weft_ps_client *client, const struct weft_table_spec *spec,
                       uint32_t id_bytes)
{
    uint16_t elem_bytes = weft_table_push_elem_bytes(spec, id_bytes);
    uint32_t head_elems = weft_rpc_head_elems(WEFT_RPC_REQUEST_BYTES, elem_bytes);
    for (uint32_t s = 0; s < client->config.shards; s++) {
        if (!client->ends[s].down && weft_ps_packet_elems(client, s, elem_bytes) < head_elems) {
            return false;
        }
    }
    return true;
}

/* WEFT_OK, or why these lists cannot be one operation. Sets what list_check determines for each. */
static weft_status lists_check(const struct weft_ps_client *client, struct weft_ps_list *lists,
                               uint32_t count, bool is_push, uint32_t bound_ppm)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < count; i++) {
        weft_status status = list_check(client, &lists[i]);
        if (status != WEFT_OK) {
            return status;
        }
        rows += lists[i].n;
        if (is_push &&
            !weft_ps_push_fits(client, &client->tables[lists[i].table].spec, lists[i].id_bytes)) {
            return WEFT_UNSUPPORTED;
        }
    }
    return rows > client->config.rows_per_op_max || bound_ppm >= WEFT_PPM ? WEFT_INVALID : WEFT_OK;
}

/* Nothing to sort: consecutive slices of the list. */
static void one_shard_parts(struct weft_ps_client *client, uint32_t index,
                            const struct weft_ps_list *list)
{
    bool is_push = client->ops[index].kind == WEFT_RPC_PUSH;
    uint32_t dim = client->tables[list->table].spec.dim, count;
    uint32_t most = ps_rows_most_of(client, list->table, 0);
    for (uint32_t first = 0, n = (uint32_t)list->n; first < n; first += count) {
        count = (uint32_t)weft_min_u64(n - first, most);
        struct weft_ps_list slice = ps_list_slice(list, dim, first, count);
        if (is_push) {
            (void)weft_ps_part_push(client, index, &slice, 0, NULL, count, 0);
        } else {
            (void)weft_ps_part_pull(client, index, &slice, 0, NULL, count);
        }
    }
}

/* Number of the rows first .. first + count - 1 that are before `end`. */
static uint32_t rows_before(uint32_t end, uint32_t first, uint32_t count)
{
    return first < end ? (uint32_t)weft_min_u64(end - first, count) : 0;
}

static void count_split(struct weft_ps_client *client, bool is_split, bool is_cold, uint32_t rows)
{
    client->counters.rows_hot += is_split && !is_cold ? rows : 0;
    client->counters.rows_cold += is_split && is_cold ? rows : 0;
}

/* A push of exactly the rows of a pull: reuse the pull's parts, which the shards may have as
 * lists. */
static void known_parts(struct weft_ps_client *client, uint32_t index,
                        const struct weft_ps_list *list, uint32_t *order)
{
    const struct ps_known *known = list->known;
    uint32_t dim = client->tables[list->table].spec.dim;
    if (known->order != NULL) {
        memcpy(order, known->order, list->n * sizeof(*order));
    }
    for (uint32_t i = 0; i < known->parts; i++) {
        const struct ps_known_part *of = &known->part[i];
        struct ps_link *link = ps_link_of(client, list->table, of->shard);
        bool may = of->number != 0 && (link->can & WEFT_RPC_CAN_LIST) != 0 &&
                   (of->is_cold || !weft_ps_via_any(client, list->table, of->shard));
        uint32_t number = may && link->list_pause == 0 ? of->number : 0, made;
        link->list_pause -= may && link->list_pause > 0;
        if (known->order != NULL) {
            made = weft_ps_part_push(client, index, list, of->shard, order + of->first, of->rows,
                                     number);
        } else {
            struct weft_ps_list slice = ps_list_slice(list, dim, of->first, of->rows);
            made = weft_ps_part_push(client, index, &slice, of->shard, NULL, of->rows, number);
        }
        client->parts[made].is_cold = of->is_cold;
        count_split(client, known->is_split, of->is_cold, of->rows);
    }
}

/* Build the parts of one list; the order of its rows follows that of the previous lists. */
static void list_parts(struct weft_ps_client *client, uint32_t index,
                       const struct weft_ps_list *list, uint32_t *order)
{
    bool is_push = client->ops[index].kind == WEFT_RPC_PUSH;
    uint32_t ways = list->pieces > 1 ? list->pieces : list->splits ? 2 : 1;
    if (list->known != NULL) {
        known_parts(client, index, list, order);
        return;
    }
    if (client->config.shards == 1 && ways == 1 &&
        (is_push || client->tables[list->table].missed.count == 0)) {
        one_shard_parts(client, index, list);
        return;
    }
    sort_rows(client, list, !is_push, ways, order);
    for (uint32_t g = 0; g < ways * client->config.shards; g++) {
        const uint32_t *start = &client->sort_start[SORT_KINDS * g];
        uint32_t end = start[SORT_KINDS], count, s = g / ways;
        uint32_t most = ps_rows_most_of(client, list->table, s);
        bool is_cold = list->splits && g % ways == 1;
        for (uint32_t first = start[0]; first < end; first += count) {
            count = (uint32_t)weft_min_u64(end - first, most);
            uint32_t made = is_push
                                ? weft_ps_part_push(client, index, list, s, order + first, count, 0)
                                : weft_ps_part_pull(client, index, list, s, order + first, count);
            struct ps_part *part = &client->parts[made];
            part->rows_critical = rows_before(start[SORT_FIRST], first, count);
            part->rows_first = rows_before(start[SORT_REST], first, count);
            part->is_cold = is_cold;
            part->piece = list->pieces > 1 ? (uint8_t)(1 + g % ways) : 0;
            if (is_push) {
                count_split(client, list->splits, is_cold, count);
            }
        }
    }
}

/* A sum is complete when it has a push of each member, so further parts of a shard, or of a piece,
 * belong to sums of their own: the next ones with numbers that no piece has. Beyond the largest
 * number they join the first; what they miss then is sent by its age. */
static void number_parts(struct weft_ps_client *client, uint32_t index,
                         const struct weft_ps_list *list, uint32_t first)
{
    for (uint32_t i = client->ops[index].parts; i-- > first;) {
        struct ps_part *part = &client->parts[ps_op_part(client, index, i)];
        uint32_t before = 0;
        for (uint32_t k = first; k < i; k++) {
            const struct ps_part *other = &client->parts[ps_op_part(client, index, k)];
            before += other->shard == part->shard && other->piece == part->piece;
        }
        const uint32_t piece = part->piece + list->pieces * before;
        part->piece = (uint8_t)(piece <= WEFT_PS_PIECES_MAX ? piece : part->piece);
    }
}

/* True: an aggregator of any shard can be used for the table. */
static bool any_via(const struct weft_ps_client *client, uint16_t table)
{
    bool any = false;
    for (uint32_t s = 0; s < client->config.shards; s++) {
        any |= weft_ps_via_any(client, table, s);
    }
    return any;
}

/* Copy, complete and check the caller's lists. */
static weft_status lists_take(struct weft_ps_client *client, bool is_push,
                              const struct weft_ps_list *from, struct weft_ps_list *lists,
                              uint32_t count, const struct weft_ps_how *how, uint64_t now_ns)
{
    if (count > client->config.lists_per_op_max) {
        return WEFT_INVALID;
    }
    for (uint32_t i = 0; i < count; i++) {
        lists[i] = from[i];
        lists[i].known = NULL;
        lists[i].fill = how->fill >> weft_min_u64(i, 63) & 1;
        lists[i].ahead = is_push ? 0 : (uint8_t)weft_min_u64(how->ahead, UINT8_MAX);
        lists[i].splits = false;
        lists[i].pieces = 1;
    }
    weft_status status = is_push && weft_ps_any_away(client)
                             ? WEFT_AGAIN
                             : lists_check(client, lists, count, is_push, how->bound_ppm);
    for (uint32_t i = 0; status == WEFT_OK && client->hots != NULL && i < count; i++) {
        /* Operations with a deadline are not sent through an aggregator. */
        lists[i].splits =
            how->deadline_ns == 0 && weft_ps_hot_splits(client, lists[i].table, !is_push);
        if (is_push) {
            weft_ps_hot_want(client, lists[i].table, now_ns);
        }
    }
    for (uint32_t i = 0; status == WEFT_OK && is_push && i < count && how->deadline_ns == 0; i++) {
        lists[i].pieces =
            any_via(client, lists[i].table) ? weft_ps_pieces(client, &lists[i]) : 1;
    }
    for (uint32_t i = 0; status == WEFT_OK && is_push && i < count; i++) {
        const struct ps_known *known = weft_ps_known_find(client, &lists[i]);
        lists[i].known = known != NULL && known->is_split == lists[i].splits &&
                                 lists[i].pieces == 1
                             ? known
                             : NULL;
    }
    if (status == WEFT_OK && is_push && ps_log_on(client)) {
        status = weft_ps_log_room(client, lists, count, now_ns);
    }
    return status;
}

weft_status weft_ps_begin(struct weft_ps_client *client, uint8_t kind,
                          const struct weft_ps_list *from, uint32_t count,
                          const struct weft_ps_how *how, uint64_t now_ns, weft_ps_op *op_p)
{
    struct weft_ps_list lists[WEFT_PS_LISTS_MAX];
    bool is_push = kind == WEFT_RPC_PUSH;
    weft_status status = lists_take(client, is_push, from, lists, count, how, now_ns);
    if (status != WEFT_OK) {
        return status;
    }
    uint32_t index = weft_ps_op_take(client, kind, count > 0 ? lists[0].table : 0);
    if (index == WEFT_PS_NONE) {
        return WEFT_AGAIN;
    }
    uint32_t *order = client->ops[index].order;
    client->ops[index].lists = count;
    client->ops[index].bound_ppm = how->bound_ppm;
    client->ops[index].deadline_ns = how->deadline_ns > 0 ? how->deadline_ns : WEFT_NEVER;
    client->ops[index].aside = how->aside;
    client->ops[index].has_norm = how->has_norm;
    client->ops[index].squares = how->norm * how->norm;
    weft_ps_deadline_arm(client, &client->ops[index]);
    for (uint32_t i = 0; i < count; i++) {
        lists[i].at = client->ops[index].rows;
        client->ops[index].rows += (uint32_t)lists[i].n;
        client->tables[lists[i].table].passed &= !is_push;
        uint32_t first = client->ops[index].parts;
        list_parts(client, index, &lists[i], order);
        if (!is_push) {
            weft_ps_known_add(client, index, &lists[i], first, order);
        } else if (client->updates != NULL && client->vias != NULL) {
            number_parts(client, index, &lists[i], first);
        }
        order += lists[i].n;
    }
    if (weft_ps_op_start(client, index)) {
        weft_ps_client_progress(client, now_ns);
    }
    *op_p = index;
    return WEFT_OK;
}

weft_status weft_ps_push_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p)
{
    const struct weft_ps_how how = {.bound_ppm = bound_ppm};
    return weft_ps_begin(client, WEFT_RPC_PUSH, lists, count, &how, now_ns, op_p);
}

weft_status weft_ps_pull_lists(struct weft_ps_client *client, const struct weft_ps_list *lists,
                               uint32_t count, uint32_t bound_ppm, uint64_t now_ns,
                               weft_ps_op *op_p)
{
    const struct weft_ps_how how = {.bound_ppm = bound_ppm};
    return weft_ps_begin(client, WEFT_RPC_PULL, lists, count, &how, now_ns, op_p);
}

weft_status weft_ps_push(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         const float *rows, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p)
{
    const struct weft_ps_list list = {.table = table, .n = n, .ids = ids, .values = rows};
    return weft_ps_push_lists(client, &list, 1, bound_ppm, now_ns, op_p);
}

weft_status weft_ps_pull(struct weft_ps_client *client, uint16_t table, const uint64_t *ids,
                         float *rows_out, uint32_t n, uint32_t bound_ppm, uint64_t now_ns,
                         weft_ps_op *op_p)
{
    const struct weft_ps_list list = {.table = table, .n = n, .ids = ids, .out = rows_out};
    return weft_ps_pull_lists(client, &list, 1, bound_ppm, now_ns, op_p);
}
