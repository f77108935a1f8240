/* The counters of transport and parameter server as JSON numbers under fixed names, so that those
 * of several processes can be added up. The names are the fields' names; what each counts is
 * written at the field (io/udp.h, core/endpoint.h, ps/shard.h, ps/client.h).
 */
#ifndef WEFT_CLI_COUNTERS_H
#define WEFT_CLI_COUNTERS_H

#include "io/driver.h"
#include "ps/client.h"
#include "ps/shard.h"

#include <cjson/cJSON.h>

/* Each adds to the numbers that are in `into` already. `messages` is messages_received, the
 * messages closed at their receiver. */
void weft_counters_add_transport(cJSON *into, const struct weft_driver_counters *counters);
void weft_counters_add_shard(cJSON *into, const struct weft_shard_counters *shard);
/* Under table_rows, table_bytes and so on. */
void weft_counters_add_tables(cJSON *into, const struct weft_shard_table_sums *tables);
void weft_counters_add_client(cJSON *into, const struct weft_ps_client_counters *client);

void weft_counters_add(cJSON *into, const char *name, uint64_t value);

#endif
