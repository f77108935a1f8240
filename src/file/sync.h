/* Durable names: after a file was made or renamed, its directory is synced. */
#ifndef WEFT_FILE_SYNC_H
#define WEFT_FILE_SYNC_H

#include "base/status.h"

/* Sync the directory that contains `path`, so that the file's name outlives a power failure. A file
 * system that cannot sync directories (EINVAL) is no error.
 * Errors:  WEFT_IO (see errno). */
weft_status weft_file_sync_name(const char *path);

#endif
