/* When the next checkpoint begins, and the orders to the shards. */
#define _GNU_SOURCE
#include "node/checkpoint_internal.h"

#include "base/assert.h"

#include <sys/mman.h>

/* At the end, a snapshot that is not taken in this time waits for a worker that will not reach its
 * clock. */
#define LAST_CUT_NS (300 * WEFT_NS_PER_MS)

void weft_checkpoint_wake(struct weft_checkpoint_feed *feed)
{
    if (feed->driver != NULL) {
        weft_driver_wake(feed->driver);
    }
}

/* Of the number of the order in `cut`; the claim's serial is in the others. */
enum { CUT_BITS = 24 };

static size_t memory_bytes(const struct weft_checkpoint *checkpoint)
{
    return (size_t)checkpoint->config.options.memory_mib << 20;
}

/* Untouched pages use no memory, so a large loan costs nothing. */
static bool lend(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        void *memory = mmap(NULL, memory_bytes(checkpoint), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        checkpoint->memory[i] = memory == MAP_FAILED ? NULL : memory;
        if (checkpoint->memory[i] == NULL) {
            return false;
        }
    }
    return true;
}

void weft_checkpoint_take_back(struct weft_checkpoint *checkpoint)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        if (checkpoint->memory[i] != NULL) {
            (void)munmap(checkpoint->memory[i], memory_bytes(checkpoint));
            checkpoint->memory[i] = NULL;
        }
    }
}

struct weft_checkpoint_standing weft_checkpoint_standing(const struct weft_checkpoint *checkpoint)
{
    struct weft_checkpoint_standing standing = {.has_tables = true};
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        const struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        standing.clock = feed->clock > standing.clock ? feed->clock : standing.clock;
        standing.has_tables &= feed->has_tables;
        standing.has_bsp |= feed->has_bsp;
    }
    return standing;
}

/* The last number that must not be given to another checkpoint. */
static uint64_t last_number(const struct weft_checkpoint *checkpoint)
{
    return weft_max_u64(weft_max_u64(checkpoint->kept, checkpoint->set.number),
                        checkpoint->unclear);
}

/* Numbers follow the clocks of the orders, so that servers need not communicate: the difference of
 * the two is the same on all servers, and stays so when they restore. Where one process has all
 * shards and makes several at one clock, the numbers increase by one. */
static uint64_t number_for(const struct weft_checkpoint *checkpoint, uint32_t clock)
{
    uint64_t number = checkpoint->set.number + clock;
    number -= checkpoint->set_ordered < clock ? checkpoint->set_ordered : clock;
    uint64_t last = last_number(checkpoint);
    return weft_checkpoint_has_all(checkpoint) && number <= last ? last + 1 : number;
}

/* The first clock at which an order gets a new number. */
static uint32_t first_clock(const struct weft_checkpoint *checkpoint)
{
    uint64_t since = last_number(checkpoint) - checkpoint->set.number;
    uint64_t first = weft_checkpoint_has_all(checkpoint) ? 0 : checkpoint->set_ordered + since + 1;
    return (uint32_t)weft_min_u64(first, UINT32_MAX);
}

/* With the lock held. False when there is no memory to lend. */
static bool send_order(struct weft_checkpoint *checkpoint, bool at_once, uint32_t clock)
{
    uint64_t number = number_for(checkpoint, clock);
    if (number <= last_number(checkpoint)) {
        /* A part with that number is valid, or may be, so the number is not reused. The next clock
         * gives another number. */
        checkpoint->next_ns = weft_clock_now_ns() + WEFT_CHECKPOINT_AGAIN_NS;
        checkpoint->retry_ns = checkpoint->next_ns;
        return true;
    }
    if (!lend(checkpoint)) {
        weft_checkpoint_take_back(checkpoint);
        return false;
    }
    uint32_t full_every = checkpoint->config.options.full_every;
    /* Another server has found a damaged part of the last checkpoint, so no delta can be based on
     * it. */
    bool has_base =
        checkpoint->kept != 0 &&
        weft_ckpt_history_has(weft_ckpt_log_history(checkpoint->log),
                              weft_ckpt_log_mine(checkpoint->log)->serial, checkpoint->kept);
    bool whole = !has_base || checkpoint->since_whole + 1 >= full_every;
    checkpoint->number = number;
    checkpoint->clock = clock;
    checkpoint->cut = (weft_ckpt_log_mine(checkpoint->log)->serial << CUT_BITS) |
                      (++checkpoint->cuts & ((UINT64_C(1) << CUT_BITS) - 1));
    checkpoint->base = whole ? 0 : checkpoint->kept;
    checkpoint->under_way = true;
    checkpoint->begun_ns = 0;
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        struct weft_checkpoint_feed *feed = &checkpoint->feeds[i];
        WEFT_ASSERT(feed->phase == WEFT_CHECKPOINT_IDLE);
        feed->order = (struct weft_cut_order){.number = checkpoint->number,
                                              .cut = checkpoint->cut,
                                              .now = at_once,
                                              .clock = clock,
                                              .whole = whole,
                                              .memory = checkpoint->memory[i],
                                              .bytes = memory_bytes(checkpoint)};
        feed->phase = WEFT_CHECKPOINT_ORDERED;
        feed->rows = 0;
        feed->fill = feed->take = 0;
        weft_checkpoint_wake(feed);
    }
    return true;
}

/* True, at the end: another checkpoint would have new contents and match the other servers'
 * parts. */
static bool last_wanted(const struct weft_checkpoint *checkpoint, struct weft_checkpoint_standing s)
{
    uint32_t clock = checkpoint->kept_any ? checkpoint->kept_clock : checkpoint->set_clock;
    bool any = checkpoint->kept_any || checkpoint->set.number > 0;
    if (any && s.has_bsp && clock == s.clock) {
        return false;
    }
    return weft_checkpoint_has_all(checkpoint) ||
           number_for(checkpoint, s.clock) > checkpoint->set.number;
}

/* If a checkpoint takes longer than the interval, a server makes only every second one, or every
 * fourth: on such grids servers of different speed make the same ones more often than on the fine
 * grid. */
static uint32_t grid_of(const struct weft_checkpoint *checkpoint, uint32_t clock)
{
    uint64_t grid = checkpoint->every_clocks;
    uint64_t took = clock > checkpoint->last_clock ? clock - checkpoint->last_clock : 0;
    while (checkpoint->last_clock > 0 && grid < took && grid < UINT32_MAX / 4) {
        grid *= 2;
    }
    return (uint32_t)grid;
}

void weft_checkpoint_refuse(struct weft_checkpoint *checkpoint, enum weft_rpc_status why)
{
    for (uint32_t i = 0; i < checkpoint->config.count; i++) {
        checkpoint->feeds[i].refusal = (uint16_t)why;
        weft_checkpoint_wake(&checkpoint->feeds[i]);
    }
}

void weft_checkpoint_consider(struct weft_checkpoint *checkpoint)
{
    struct weft_checkpoint_standing s = weft_checkpoint_standing(checkpoint);
    bool hurry = checkpoint->last || checkpoint->requested || checkpoint->wanted_clock > 0;
    if (checkpoint->under_way || !s.has_tables ||
        (!hurry && weft_clock_now_ns() < checkpoint->next_ns) ||
        (!checkpoint->last && weft_clock_now_ns() < checkpoint->retry_ns)) {
        return;
    }
    bool ordered = true;
    checkpoint->ahead = checkpoint->by_request = false;
    if (checkpoint->last) {
        bool wanted = !checkpoint->last_done && last_wanted(checkpoint, s);
        /* Parts of several servers match only if all are of the clock that gave the number. A
         * worker's CLOCK may arrive while the order waits, at one server and not at another. */
        bool at_once = weft_checkpoint_has_all(checkpoint) || !s.has_bsp;
        checkpoint->last_done = true;
        checkpoint->next_ns = weft_clock_now_ns() + LAST_CUT_NS;
        ordered = !wanted || send_order(checkpoint, at_once, s.clock);
    } else if (checkpoint->wanted_clock > 0) {
        uint32_t first = first_clock(checkpoint);
        ordered = send_order(checkpoint, false,
                             checkpoint->wanted_clock > first ? checkpoint->wanted_clock : first);
        checkpoint->wanted_clock = 0;
    } else if (checkpoint->every_clocks > 0 && !checkpoint->requested) {
        uint32_t every = grid_of(checkpoint, s.clock);
        /* After a restore the shards may not have reached the clock of its order yet. */
        uint32_t next = (uint32_t)weft_max_u64(s.clock + UINT64_C(1), first_clock(checkpoint));
        checkpoint->ahead = true;
        checkpoint->last_clock = (uint32_t)weft_div_ceil_u64(next, every) * every;
        ordered = send_order(checkpoint, false, checkpoint->last_clock);
    } else if (checkpoint->every_ns > 0 || checkpoint->requested) {
        /* Shards of one job are at most one clock apart (PROTOCOL.md section 7, "Clocks"). */
        bool alone = checkpoint->config.count == 1; /* no other shard can be at another clock */
        bool now_or_never = checkpoint->requested && (checkpoint->at_once || alone);
        checkpoint->by_request = checkpoint->requested;
        checkpoint->ahead = !checkpoint->requested && s.has_bsp;
        checkpoint->requested = false;
        checkpoint->impatient_ns = weft_time_add(weft_clock_now_ns(), checkpoint->patience_ns);
        ordered = send_order(checkpoint, now_or_never || !s.has_bsp,
                             now_or_never ? s.clock : s.clock + 2);
    }
    if (!ordered) {
        weft_checkpoint_refuse(checkpoint, WEFT_RPC_NO_COPIES);
        checkpoint->next_ns = weft_clock_now_ns() + WEFT_CHECKPOINT_AGAIN_NS;
        weft_node_warn(&checkpoint->config.log,
                       "no checkpoint: no memory to lend; --checkpoint-memory is too large");
    }
}
