/* The file at the end of links. Writers that replace a file by a new one replace this one, so that
 * a link is kept. */
#ifndef WEFT_FILE_TARGET_H
#define WEFT_FILE_TARGET_H

#include "base/status.h"

/* The file that the path names: the end of its links, also if that does not exist yet, as an
 * absolute path without links. Its directory must exist.
 * Owns: gives *target_p, to be freed.  Errors: WEFT_IO (see errno). */
weft_status weft_file_target(const char *path, char **target_p);

#endif
