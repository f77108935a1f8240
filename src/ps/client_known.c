/* The client's record of the lists of ids that shards keep: for each of its newest pulls the ids,
 * their split into shards, and the name under which each shard keeps its part.
 *
 * A push of exactly the same ids, in the same order, reuses the pull's parts: it need not be
 * sorted, and the rows of each part are those of a list, in the list's order. All ids are compared;
 * lists that differ usually differ at the first id.
 *
 * Source: docs/PROTOCOL.md section 7, "Lists"; [li14] section 3.6, "Messages".
 */
#include "ps/client_internal.h"

#include "base/assert.h"

#include <stdlib.h>

/* Number of largest pulls that fit at least: the next step's pull may begin before this step's
 * push, and both may have two operations. */
enum { LARGEST_PULLS = 4 };

static size_t bytes_of(uint32_t n, uint32_t parts, bool sorted)
{
    size_t order_bytes = sorted ? n * sizeof(uint32_t) : 0;
    size_t bytes = n * sizeof(uint64_t) + parts * sizeof(struct ps_known_part) + order_bytes;
    return (bytes + 7) / 8 * 8;
}

weft_status weft_ps_known_init(struct weft_ps_client *client)
{
    const struct weft_ps_client_config *config = &client->config;
    struct ps_knowns *known = &client->known;
    client->list_part = WEFT_PS_NONE;
    for (uint32_t s = 0; s < config->shards; s++) {
        client->ends[s].list_part = WEFT_PS_NONE;
    }
    if (!ps_lists_on(client)) {
        return WEFT_OK;
    }
    known->bytes = LARGEST_PULLS * bytes_of(config->rows_per_op_max, client->parts_per_op, true);
    known->memory = malloc(known->bytes);
    /* A row of one block: longer rows name no lists. */
    size_t row_bytes =
        sizeof(uint64_t) + weft_min_u64(config->dim_max, WEFT_RPC_BLOCK_FLOATS) * sizeof(float);
    client->list_request =
        malloc(WEFT_RPC_REQUEST_BYTES + row_bytes +
               weft_min_u64(ps_rows_most(config), config->rows_per_op_max) * row_bytes);
    return known->memory != NULL && client->list_request != NULL ? WEFT_OK : WEFT_NOMEM;
}

void weft_ps_known_fini(struct weft_ps_client *client)
{
    free(client->known.memory);
    free(client->list_request);
}

static struct ps_known *known_at(struct ps_knowns *known, uint32_t i)
{
    return &known->of[(known->first + i) % PS_KNOWN_MAX];
}

/* Offset for this many bytes without evicting a pull; UINT64_MAX: none. */
static uint64_t room(struct ps_knowns *known, uint64_t bytes)
{
    if (known->count == 0) {
        return 0;
    }
    const struct ps_known *newest = known_at(known, known->count - 1);
    uint64_t begin = known_at(known, 0)->at, end = newest->at + newest->bytes;
    if (newest->at < begin) { /* it has wrapped */
        return begin - end >= bytes ? end : UINT64_MAX;
    }
    return known->bytes - end >= bytes ? end : begin >= bytes ? 0 : UINT64_MAX;
}

static struct ps_known *known_take(struct ps_knowns *known, uint64_t bytes)
{
    uint64_t at = UINT64_MAX;
    WEFT_ASSERT(bytes <= known->bytes);
    while (known->count == PS_KNOWN_MAX || (at = room(known, bytes)) == UINT64_MAX) {
        known->first = (known->first + 1) % PS_KNOWN_MAX;
        known->count--;
    }
    struct ps_known *taken = known_at(known, known->count++);
    *taken = (struct ps_known){.life = ++known->lives, .at = at, .bytes = bytes};
    return taken;
}

static bool is_kept(struct weft_ps_client *client, const struct ps_part *part)
{
    return (ps_link_of(client, part->table, part->shard)->can & WEFT_RPC_CAN_LIST) != 0;
}

static bool wanted(struct weft_ps_client *client, uint32_t op, const struct weft_ps_list *list,
                   uint32_t first)
{
    bool any = false;
    if (!ps_lists_on(client) || list->ids == NULL ||
        weft_table_blocks(&client->tables[list->table].spec) > 1) {
        return false;
    }
    for (uint32_t i = first; i < client->ops[op].parts; i++) {
        any |= is_kept(client, &client->parts[ps_op_part(client, op, i)]);
    }
    return any;
}

void weft_ps_known_add(struct weft_ps_client *client, uint32_t op, const struct weft_ps_list *list,
                       uint32_t first, const uint32_t *order)
{
    uint32_t parts = client->ops[op].parts - first;
    if (!wanted(client, op, list, first)) {
        return;
    }
    struct ps_part *made = &client->parts[ps_op_part(client, op, first)];
    const bool sorted = made->order != NULL;
    struct ps_known *known = known_take(&client->known, bytes_of(list->n, parts, sorted));
    uint8_t *memory = client->known.memory + known->at;
    known->table = list->table;
    known->is_split = list->splits;
    known->n = list->n;
    known->parts = parts;
    known->ids = (uint64_t *)(void *)memory;
    memory += list->n * sizeof(uint64_t);
    known->part = (struct ps_known_part *)(void *)memory;
    known->order = sorted ? (uint32_t *)(void *)(memory + parts * sizeof(*known->part)) : NULL;
    memcpy(known->ids, list->ids, list->n * sizeof(uint64_t));
    if (sorted) {
        memcpy(known->order, order, list->n * sizeof(uint32_t));
    }
    for (uint32_t i = 0; i < parts; i++) {
        struct ps_part *part = &client->parts[ps_op_part(client, op, first + i)];
        known->part[i] = (struct ps_known_part){
            .shard = part->shard,
            .first = sorted ? (uint32_t)(part->order - order) : part->list.at - list->at,
            .rows = part->rows,
            .is_cold = part->is_cold,
        };
        part->keeps = is_kept(client, part);
        part->known = (uint32_t)(known - client->known.of);
        part->known_life = known->life;
        part->known_part = i;
    }
}

void weft_ps_known_kept(struct weft_ps_client *client, const struct ps_part *part)
{
    struct ps_known *known = &client->known.of[part->known];
    /* The slot may have been reused by another pull. */
    uint32_t i = (part->known + PS_KNOWN_MAX - client->known.first) % PS_KNOWN_MAX;
    if (part->keeps && known->life == part->known_life && i < client->known.count) {
        known->part[part->known_part].number = part->rpc_id;
    }
}

/* True: at least one shard keeps its part as a list. */
static bool is_named(const struct ps_known *known)
{
    bool any = false;
    for (uint32_t p = 0; p < known->parts; p++) {
        any |= known->part[p].number != 0;
    }
    return any;
}

const struct ps_known *weft_ps_known_find(const struct weft_ps_client *client,
                                          const struct weft_ps_list *list)
{
    const struct ps_knowns *known = &client->known;
    const struct ps_known *unnamed = NULL;
    for (uint32_t i = known->count; list->ids != NULL && list->n > 0 && i > 0; i--) {
        const struct ps_known *of = &known->of[(known->first + i - 1) % PS_KNOWN_MAX];
        if (of->table != list->table || of->n != list->n || of->ids[0] != list->ids[0] ||
            memcmp(of->ids, list->ids, list->n * sizeof(*list->ids)) != 0) {
            continue;
        }
        if (is_named(of)) {
            return of;
        }
        unnamed = unnamed == NULL ? of : unnamed;
    }
    return unnamed;
}

void weft_ps_known_drop(struct weft_ps_client *client, uint32_t table, uint32_t shard,
                        uint32_t number)
{
    for (uint32_t i = 0; i < client->known.count; i++) {
        struct ps_known *known = known_at(&client->known, i);
        for (uint32_t p = 0; p < known->parts; p++) {
            struct ps_known_part *part = &known->part[p];
            if ((table == UINT32_MAX || known->table == table) && part->shard == shard &&
                (number == 0 || part->number == number)) {
                part->number = 0;
            }
        }
    }
}
