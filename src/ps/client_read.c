/* Read admission in a job with a scheduler (ps/update.h): pulls of a step wait in their shards'
 * queues until the scheduler admits the step's read.
 *
 * Nothing else waits behind such a pull: other parts pass it in the queue, a push of the same step
 * releases it, and CLOCK is not in the queue. */
#include "ps/client_internal.h"
#include "ps/update.h"

/* The step in progress: the clock after the highest clock of all tables. */
static uint32_t step(const struct weft_ps_client *client)
{
    uint32_t most = 0;
    for (uint32_t t = 0; t < client->config.tables_max; t++) {
        most = client->tables[t].clock > most ? client->tables[t].clock : most;
    }
    return most + 1;
}

bool weft_ps_read_holds(const struct weft_ps_client *client, const struct ps_part *part)
{
    if (!client->reads.wait || part->kind != WEFT_RPC_PULL || part->op == WEFT_PS_NONE ||
        part->rows == 0 || client->ops[part->op].aside) {
        return false;
    }
    const uint32_t now = step(client);
    return client->reads.begun != now && !weft_ps_update_of(client, now);
}

bool weft_ps_read_may_go(struct weft_ps_client *client, const struct ps_part *part)
{
    if (!weft_ps_read_holds(client, part)) {
        return true;
    }
    struct ps_reads *reads = &client->reads;
    const uint32_t now = step(client);
    if (reads->wanted != now && !weft_ps_updates_ungranted(client)) {
        reads->wanted = now;
        reads->begun = 0; /* of an earlier step, which ended with its update */
    }
    return false;
}

static bool may_wait(const struct weft_ps_client *client)
{
    return client->updates != NULL && client->reads.wait;
}

void weft_ps_reads_wait(struct weft_ps_client *client, bool wait, uint64_t now_ns)
{
    bool ends = may_wait(client) && !wait;
    client->reads.wait = client->updates != NULL && wait;
    if (ends) {
        client->reads.wanted = 0;
        weft_ps_client_progress(client, now_ns);
    }
}

bool weft_ps_read_wanted(const struct weft_ps_client *client, uint32_t *clock_p)
{
    *clock_p = client->reads.wanted;
    return *clock_p != 0;
}

void weft_ps_read_begin(struct weft_ps_client *client, uint32_t clock, uint64_t now_ns)
{
    client->reads.begun = clock;
    client->reads.wanted = client->reads.wanted == clock ? 0 : client->reads.wanted;
    weft_ps_client_progress(client, now_ns);
}

bool weft_ps_read_over(struct weft_ps_client *client)
{
    bool over = client->reads.over_due;
    client->reads.over_due = false;
    return over;
}

void weft_ps_read_pushes(struct weft_ps_client *client, uint32_t clock)
{
    struct ps_reads *reads = &client->reads;
    if (reads->wanted != 0 && clock >= reads->wanted) { /* the pull is sent without admission */
        reads->wanted = 0;
        reads->over_due = true;
    }
}

void weft_ps_read_pushed(struct weft_ps_client *client, uint32_t clock)
{
    struct ps_reads *reads = &client->reads;
    if (reads->begun != 0 && clock >= reads->begun) {
        reads->begun = 0;
        reads->over_due = true;
    }
}
