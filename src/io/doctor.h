/* Facts about this host that limit weft's speed, each found by a test, with advice where the host
 * falls short. It does not print (cli does) and sends nothing beyond loopback.
 */
#ifndef WEFT_IO_DOCTOR_H
#define WEFT_IO_DOCTOR_H

#include "base/units.h"

#include <stdbool.h>

enum weft_fact_state {
    WEFT_FACT_OK,
    WEFT_FACT_WARN,    /* weft works, slower or with less information */
    WEFT_FACT_MISSING, /* weft will not work as configured */
};

enum { WEFT_FACTS_MAX = 32 };

struct weft_fact {
    char name[40];  /* "gso", "recv_buffer_max_bytes", "mtu_lo": lower case, unit last */
    char value[72]; /* number or word */
    enum weft_fact_state state;
    char advice[200]; /* what to do; empty when state is OK */
};

struct weft_doctor {
    uint32_t count;
    struct weft_fact facts[WEFT_FACTS_MAX];
};

/* Examine the host; takes about 20 ms.
 *
 * port:    also check whether 127.0.0.1:port is free; 0 = do not.
 * Errors:  none: a failed check is a fact too. */
void weft_doctor_run(uint16_t port, struct weft_doctor *doctor_p);

/* Add a fact; ignored when there are WEFT_FACTS_MAX. advice is dropped when state is OK, so callers
 * may always pass it. */
[[gnu::format(printf, 5, 6)]] void weft_doctor_add(struct weft_doctor *doctor, const char *name,
                                                   enum weft_fact_state state, const char *advice,
                                                   const char *format, ...);

/* "ok", "warn", "missing". */
const char *weft_fact_state_name(enum weft_fact_state state);

#endif
