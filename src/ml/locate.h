/* Find a data file from the name given by the user.
 *
 * The caller passes the directories in order of preference (the value of WEFT_DATA_DIR, the source
 * tree's data/, the installed data directory); the environment is not read here.
 */
#ifndef WEFT_ML_LOCATE_H
#define WEFT_ML_LOCATE_H

#include "ml/error.h"

enum { WEFT_ML_PATH_BYTES = 1024 };

/* Return the first of these that exists and is not a directory, each with "", ".zst" and ".gz"
 * appended:
 *
 *     name;   directory/name and directory/<name up to its first dot>/name for each directory
 *
 * so that "a9a" finds DIR/a9a/a9a.zst. A name that begins with '/' or '.' is used as it is.
 *
 * Shape:   directories (directory_count,); NULL and empty ones are skipped.
 * Errors:  WEFT_NOTFOUND   none exists; the text lists the directories.
 *          WEFT_INVALID    the name is empty, or too long for WEFT_ML_PATH_BYTES. Other paths that
 *                          are too long are skipped.
 */
weft_status weft_ml_locate(const char *name, const char *const *directories, size_t directory_count,
                           struct weft_error *error, char path_p[WEFT_ML_PATH_BYTES]);

#endif
