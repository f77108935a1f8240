/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
 *
 * A bank of hot rows: the sums of up to 256 blocks of eight values, in two sets, and the receive
 * windows of its workers. A row consists of as many blocks as it needs, padded with zeros; the bank
 * does not know which blocks belong to which row. All blocks of a packet are in one bank. Each bank
 * has one lock, so adding a packet and marking it as received are one step. Banks do not block each
 * other.
 *
 *                    flush                       server has it
 *     active set  ----------->  draining set  ------------------>  zeros, free again
 *
 * Packets are added to the active set. A flush makes it the draining set, whose sums are sent to
 * the server; new packets are added to the other set. The bank can be flushed again when the
 * draining set is free.
 *
 * The policy determines when a packet is acknowledged: with ON_APPLY as soon as it is added, with
 * ON_COMMIT when the server has its set. A duplicate gets the same acknowledgement and is not added
 * again.
 *
 * An epoch is one selection of hot rows with their exponents. weft_agg_bank_begin starts an epoch
 * when both sets are empty. Windows persist across epochs: a packet of the old epoch is
 * acknowledged if it was added; otherwise it is refused, and its sender sends it directly to the
 * server.
 */
#ifndef WEFT_AGG_ROWS_H
#define WEFT_AGG_ROWS_H

#include "agg/add.h"
#include "agg/dense.h"
#include "agg/window.h"

enum { WEFT_AGG_BANK_BLOCKS = 256 };

struct weft_agg_bank_set {
    uint32_t packets;                       /* packets added; if 0, all fields below are zero */
    uint32_t reserved;                      /* zero */
    uint32_t updates[WEFT_AGG_BANK_BLOCKS]; /* updates of each block: an optimizer may need the
                                             * number */
    uint32_t sums[WEFT_AGG_BANK_BLOCKS * WEFT_AGG_BLOCK]; /* int32 in two's complement, or floats */
};

struct weft_agg_bank {
    uint32_t epoch;
    uint16_t blocks;     /* in use */
    uint8_t form;        /* WEFT_AGG_FLOAT32, or 0 for int32 */
    uint8_t policy;      /* enum weft_agg_policy */
    uint8_t active;      /* the set that packets are added to */
    uint8_t draining;    /* the other set was sent and is not acknowledged yet */
    uint8_t open;        /* accepts packets; zero before the first epoch and between epochs */
    uint8_t reserved[5]; /* zero */
    int8_t exponents[WEFT_AGG_BANK_BLOCKS]; /* of each block's values, in this epoch */
    struct weft_agg_window windows[WEFT_AGG_MEMBERS_MAX];
    struct weft_agg_bank_set sets[2];
};

_Static_assert(sizeof(struct weft_agg_bank) ==
                   16 + WEFT_AGG_BANK_BLOCKS + WEFT_AGG_MEMBERS_MAX * 136 +
                       2 * (8 + 4 * WEFT_AGG_BANK_BLOCKS * (1 + WEFT_AGG_BLOCK)),
               "one layout");

enum { WEFT_AGG_ROWS_OVERFLOW = 1, WEFT_AGG_ROWS_MISFIT = 2 };

/* Add all blocks, or subtract them if `back`. Returns the errors as WEFT_AGG_ROWS_... bits. A block
 * that does not fit is also added, to the sum that its masked index selects, and later subtracted.
 * This saves a pass over the packet and keeps the number of paths small enough for the kernel's
 * verifier. */
WEFT_AGG_INLINE uint32_t weft_agg_rows_each(struct weft_agg_bank *bank, uint32_t count,
                                            const uint8_t *rows, const uint8_t *end, bool back)
{
    uint32_t overflow = 0;
    uint32_t misfit = 0;
    struct weft_agg_bank_set *set = &bank->sets[weft_agg_within(bank->active, 2)];
    for (uint32_t i = 0; i < WEFT_AGG_ROWS_MAX && i < count; i++) {
        const uint8_t *at = rows + i * WEFT_AGG_ROW_BYTES;
        if (at + WEFT_AGG_ROW_BYTES > end) {
            break;
        }
        struct weft_wire_agg_row row = weft_wire_agg_row_decode(at);
        uint32_t block = weft_agg_within(row.block, WEFT_AGG_BANK_BLOCKS);
        uint32_t *sums = set->sums + block * WEFT_AGG_BLOCK;
        if (back) {
            weft_agg_subtract_block(sums, at + WEFT_AGG_ROW_HEAD_BYTES);
            set->updates[block] -= 1;
        } else {
            /* Branch-free: misfit becomes nonzero if the block is not in use (the difference is
             * not negative: bit 31), the exponent differs, or the reserved byte is not zero. */
            misfit |= ((uint32_t)row.block - bank->blocks) >> 31 ^ 1;
            misfit |= (uint8_t)(bank->exponents[block] ^ row.exponent) | row.reserved;
            overflow |= weft_agg_add_block(sums, at + WEFT_AGG_ROW_HEAD_BYTES);
            set->updates[block] += 1;
        }
    }
    return overflow >> 31 | (misfit != 0 ? WEFT_AGG_ROWS_MISFIT : 0);
}

#ifndef __bpf__
/* The same for floats. Float sums cannot be restored by subtraction, so they are checked before
 * they are stored. If a packet contains a block twice, each occurrence is checked without the
 * other. A sum that overflows only with both becomes infinite; the server refuses it like
 * any infinite value. */
static inline uint32_t weft_agg_rows_real(struct weft_agg_bank *bank, uint32_t count,
                                          const uint8_t *rows)
{
    struct weft_agg_bank_set *set = &bank->sets[bank->active & 1];
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *at = rows + i * WEFT_AGG_ROW_BYTES;
        struct weft_wire_agg_row row = weft_wire_agg_row_decode(at);
        if (row.block >= bank->blocks || row.exponent != 0 || row.reserved != 0) {
            return WEFT_AGG_ROWS_MISFIT;
        }
        bad |= weft_agg_real_try(set->sums + row.block * WEFT_AGG_BLOCK,
                                 at + WEFT_AGG_ROW_HEAD_BYTES, WEFT_AGG_BLOCK);
    }
    for (uint32_t i = 0; bad == 0 && i < count; i++) {
        const uint8_t *at = rows + i * WEFT_AGG_ROW_BYTES;
        uint32_t block = weft_wire_agg_row_decode(at).block;
        weft_agg_real_add(set->sums + block * WEFT_AGG_BLOCK, at + WEFT_AGG_ROW_HEAD_BYTES,
                          WEFT_AGG_BLOCK);
        set->updates[block]++;
    }
    return bad >> 31;
}
#endif

/* Add a packet that is new to the window, completely or not at all. Returns its verdict. */
WEFT_AGG_INLINE uint8_t weft_agg_rows_sum(struct weft_agg_bank *bank,
                                          const struct weft_wire_agg *packet, const uint8_t *rows,
                                          const uint8_t *end)
{
    uint32_t wrong;
    if (!bank->open) {
        return WEFT_AGG_REFUSED_CLOSED;
    }
    if (packet->epoch != bank->epoch) {
        return WEFT_AGG_REFUSED_EPOCH;
    }
    if ((packet->flags & WEFT_AGG_FLOAT32) != bank->form) {
        return WEFT_AGG_REFUSED_FORM;
    }
#ifdef __bpf__
    /* Floats are not supported here: their bits would be added as integers. */
    if (bank->form != 0) {
        return WEFT_AGG_REFUSED_FORM;
    }
#else
    if (bank->form == WEFT_AGG_FLOAT32) {
        wrong = weft_agg_rows_real(bank, packet->count, rows);
    } else
#endif
    {
        wrong = weft_agg_rows_each(bank, packet->count, rows, end, false);
        if (wrong != 0) {
            (void)weft_agg_rows_each(bank, packet->count, rows, end, true);
        }
    }
    if (wrong == 0) {
        return WEFT_AGG_ADDED;
    }
    return wrong & WEFT_AGG_ROWS_MISFIT ? WEFT_AGG_REFUSED_FORM : WEFT_AGG_REFUSED_RANGE;
}

/* Process a ROWS packet from a configured member, for this bank.
 *
 * Owns:    borrows rows until return. Thread: the holder of the bank's lock.
 * Gives:   ANSWER: send an ACK of the member's window (weft_agg_window_ack). */
WEFT_AGG_INLINE struct weft_agg_outcome
weft_agg_rows_receive(struct weft_agg_bank *bank, const struct weft_wire_agg *packet,
                      const uint8_t *rows, const uint8_t *end, struct weft_agg_counts *counts)
{
    struct weft_agg_window *w =
        &bank->windows[weft_agg_within(packet->member, WEFT_AGG_MEMBERS_MAX)];
    weft_agg_window_advance(w, packet->from);
    enum weft_agg_window_state place = weft_agg_window_look(w, packet->number);
    if (place == WEFT_AGG_WINDOW_PASSED || place == WEFT_AGG_WINDOW_AHEAD) {
        return weft_agg_outcome(place == WEFT_AGG_WINDOW_PASSED ? WEFT_AGG_PASSED : WEFT_AGG_AHEAD,
                                WEFT_AGG_DROP);
    }
    if (place == WEFT_AGG_WINDOW_OLD) {
        return weft_agg_outcome(WEFT_AGG_AGAIN, WEFT_AGG_ANSWER);
    }
    uint8_t verdict = weft_agg_rows_sum(bank, packet, rows, end);
    if (verdict != WEFT_AGG_ADDED) {
        weft_agg_window_refuse(w, packet->number);
        return weft_agg_outcome(verdict, WEFT_AGG_ANSWER);
    }
    weft_agg_window_take(w, packet->number, bank->policy == WEFT_AGG_ON_COMMIT, bank->active);
    bank->sets[weft_agg_within(bank->active, 2)].packets++;
    counts->values += (uint32_t)packet->count * WEFT_AGG_BLOCK;
    return weft_agg_outcome(WEFT_AGG_ADDED, WEFT_AGG_ANSWER);
}

/* Make the active set the draining set. Returns false if it is empty, or if the other set is not
 * acknowledged yet. */
WEFT_AGG_INLINE bool weft_agg_bank_flush(struct weft_agg_bank *bank)
{
    if (bank->draining || bank->sets[weft_agg_within(bank->active, 2)].packets == 0) {
        return false;
    }
    bank->draining = 1;
    bank->active ^= 1;
    return true;
}

/* End draining: the server has the set, or, with committed = false, will never have it. In the
 * second case its packets are lost under ON_APPLY; under ON_COMMIT they are refused retroactively,
 * and their senders send them directly. Returns false if no set is draining.
 *
 * Cost:    writes the whole set. */
WEFT_AGG_INLINE bool weft_agg_bank_settle(struct weft_agg_bank *bank, bool committed)
{
    if (!bank->draining) {
        return false;
    }
    uint32_t which = weft_agg_within(bank->active ^ 1u, 2);
    struct weft_agg_bank_set *set = &bank->sets[which];
    for (uint32_t i = 0; i < WEFT_AGG_BANK_BLOCKS; i++) {
        set->updates[i] = 0;
        for (uint32_t j = 0; j < WEFT_AGG_BLOCK; j++) {
            set->sums[i * WEFT_AGG_BLOCK + j] = 0;
        }
    }
    set->packets = 0;
    for (uint32_t i = 0; i < WEFT_AGG_MEMBERS_MAX; i++) {
        weft_agg_window_settle(&bank->windows[i], which, committed);
    }
    bank->draining = 0;
    return true;
}

/* Refuse new packets from now on. The epoch ends when both sets are empty. */
WEFT_AGG_INLINE void weft_agg_bank_close(struct weft_agg_bank *bank)
{
    bank->open = 0;
}

/* Parameters of an epoch; fields as in the bank. */
struct weft_agg_bank_epoch {
    uint32_t epoch;
    uint16_t blocks;
    uint8_t form;
    uint8_t policy;
    int8_t exponents[WEFT_AGG_BANK_BLOCKS]; /* 0 with floats */
};

/* Start an epoch. Returns false if data of the old epoch remains (flush and settle it first), or if
 * there are more than WEFT_AGG_BANK_BLOCKS blocks. */
WEFT_AGG_INLINE bool weft_agg_bank_begin(struct weft_agg_bank *bank,
                                         const struct weft_agg_bank_epoch *epoch)
{
    if (epoch->blocks > WEFT_AGG_BANK_BLOCKS || bank->draining || bank->sets[0].packets != 0 ||
        bank->sets[1].packets != 0) {
        return false;
    }
    bank->epoch = epoch->epoch;
    bank->blocks = epoch->blocks;
    bank->form = epoch->form & WEFT_AGG_FLOAT32;
    bank->policy = epoch->policy;
    bank->open = 1;
    for (uint32_t i = 0; i < WEFT_AGG_BANK_BLOCKS; i++) {
        bank->exponents[i] = epoch->exponents[i];
    }
    return true;
}

#endif
