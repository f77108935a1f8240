/* Records of a worker in a user's program. They stay in the recorder's file, the spool
 * (docs/RECORDS.md): the library does not convert it to a database, so that programs that link the
 * library need no SQLite. `weft trace merge` converts it. */
#define _GNU_SOURCE
#include "api/ps_internal.h"

#include "obs/recorder.h"

#include <errno.h>
#include <stdlib.h>

weft_status weft_api_ps_records_open(struct weft_ps *ps, const struct weft_ps_config *from)
{
    const char *path = from->records;
    struct weft_recorder_config config;
    struct weft_error error = {.text = ""};
    path = path != NULL ? path : getenv("WEFT_RECORDS");
    if (path == NULL || path[0] == '\0') {
        return WEFT_OK;
    }
    weft_recorder_config_default(&config);
    config.path = path;
    config.rank = from->worker;
    config.command = program_invocation_name;
    weft_status status = weft_recorder_open(&config, &ps->recorder, &error);
    if (status != WEFT_OK) {
        return weft_fail(&ps->worker.error, status, "records: %.400s", error.text);
    }
    ps->records = weft_recorder_ring(ps->recorder);
    return ps->records != NULL ? WEFT_OK
                               : weft_fail(&ps->worker.error, WEFT_NOMEM, "no memory for records");
}
