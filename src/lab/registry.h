/* The list of labs on this machine: one small JSON file each in /run/weft/lab.
 *
 * A file identifies the holder of a lab by pid and start time, which together are unique. A file
 * whose holder has ended is left over from a kill -9; the next list or claim removes it. The file
 * also has the PID namespace: inside a container or a lab the pids are not valid, and then a file
 * is neither trusted nor removed.
 */
#ifndef WEFT_LAB_REGISTRY_H
#define WEFT_LAB_REGISTRY_H

#include "lab/cluster.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define WEFT_LAB_REGISTRY "/run/weft/lab"

/* Claim the name for a holder, or fail. `facts` (weft_lab_spec_json) gets the members holder, start
 * and state "starting"; write it again with state "up" by weft_lab_registry_write.
 *
 * Owns:    borrows facts until return; adds members to it.
 * Errors:  WEFT_EXISTS  a live lab has the name.
 *          WEFT_IO      the folder cannot be created or written: not root. */
[[nodiscard]] weft_status weft_lab_registry_claim(cJSON *facts, pid_t holder,
                                                  struct weft_error *error);

/* Rewrite the facts, atomically. */
[[nodiscard]] weft_status weft_lab_registry_write(const cJSON *facts, struct weft_error *error);

/* Remove the lab's files, if they belong to this holder. Returns no error: it is called in
 * clean-up. */
void weft_lab_registry_remove(const char *name, pid_t holder);

/* All live labs by name, as an array of their facts; leftovers of dead labs are removed if the
 * caller has permission. NULL = out of memory. Owns: gives. */
cJSON *weft_lab_registry_list(void);

/* The facts of one live lab, or NULL. Owns: gives. */
cJSON *weft_lab_registry_get(const char *name);

/* A fact as a number; 0 if it is missing. */
uint64_t weft_lab_fact_u64(const cJSON *facts, const char *name);

/* A fact as text; "" if it is missing. Valid as long as the facts. */
const char *weft_lab_fact_text(const cJSON *facts, const char *name);

#endif
