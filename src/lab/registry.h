/* The list of labs of this machine: one small JSON file each in /run/weft/lab.
 *
 * A file says who holds the lab: pid and start time, which together name one process for ever. A
 * file whose holder has ended is a leftover of a kill -9; whoever lists or claims removes it. The PID
 * namespace is written down as well: from inside a container or a lab the numbers mean nothing, and
 * then a file is neither believed nor removed.
 */
#ifndef WEFT_LAB_REGISTRY_H
#define WEFT_LAB_REGISTRY_H

#include "lab/cluster.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define WEFT_LAB_REGISTRY "/run/weft/lab"

/* Take the name for a holder, or fail. `facts` (weft_lab_spec_json) gets holder, start and state
 * "starting"; publish again with state "up" by weft_lab_registry_write.
 *
 * Owns:    borrows facts until return; adds members to it.
 * Errors:  WEFT_EXISTS  a living lab has the name.
 *          WEFT_IO      the folder cannot be made or written: not root. */
[[nodiscard]] weft_status weft_lab_registry_claim(cJSON *facts, pid_t holder,
                                                  struct weft_error *error);

/* Write the facts anew, at once as a whole. */
[[nodiscard]] weft_status weft_lab_registry_write(const cJSON *facts, struct weft_error *error);

/* Remove the lab's files, if they are this holder's. No error: it is what a clean-up calls. */
void weft_lab_registry_remove(const char *name, pid_t holder);

/* All living labs by name, as an array of their facts; leftovers of dead ones are removed, as far as
 * the caller may. NULL = out of memory. Owns: gives. */
cJSON *weft_lab_registry_list(void);

/* The facts of one living lab, or NULL. Owns: gives. */
cJSON *weft_lab_registry_get(const char *name);

/* A fact as a number; 0 when it is missing. */
uint64_t weft_lab_fact_u64(const cJSON *facts, const char *name);

/* A fact as a text; "" when it is missing. Lives as long as the facts. */
const char *weft_lab_fact_text(const cJSON *facts, const char *name);

#endif
