/* Where a data file is, given what the user said.
 *
 * The caller passes the places in order of preference (the value of WEFT_DATA_DIR, the source
 * tree's data/, the installed data directory); nothing here reads the environment.
 */
#ifndef WEFT_ML_LOCATE_H
#define WEFT_ML_LOCATE_H

#include "ml/error.h"

enum { WEFT_ML_PATH_BYTES = 1024 };

/* The first of these that exists and is not a directory, `name` with "", ".zst" and ".gz" each:
 *
 *     name;   directory/name and directory/<name up to its first dot>/name for each directory
 *
 * so that "a9a" finds DIR/a9a/a9a.zst. A name that begins with '/' or '.' is taken as it stands.
 *
 * Shape:   directories (directory_count,); NULL and empty ones are passed over.
 * Errors:  WEFT_NOTFOUND   none exists; the text lists the directories.
 *          WEFT_INVALID    the name is empty or a path gets longer than WEFT_ML_PATH_BYTES.
 */
weft_status weft_ml_locate(const char *name, const char *const *directories, size_t directory_count,
                           struct weft_error *error, char path_p[WEFT_ML_PATH_BYTES]);

#endif
