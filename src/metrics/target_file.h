/* A file with the address of a process's metrics, for programs that cannot read its standard error.
 * The format is that of Prometheus' file_sd_configs, which `weft top --targets` reads, too.
 *
 * The file exists as long as the metrics are served. It is written under another name first, so
 * that no reader sees an incomplete file, and removed at the end. If the process is killed, the
 * file stays until another process of that rank writes its own.
 *
 * Source: docs/METRICS.md, "Your own programs".
 */
#ifndef WEFT_METRICS_TARGET_FILE_H
#define WEFT_METRICS_TARGET_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { WEFT_TARGET_FILE_BYTES = 512, WEFT_TARGET_NO_RANK = UINT32_MAX };

struct weft_target_file {
    pid_t pid;                         /* of the process that wrote it: a forked copy does not
                                        * remove it */
    char path[WEFT_TARGET_FILE_BYTES]; /* "" = none */
};

/* Write FOLDER/ROLE-RANK.json, or FOLDER/ROLE-PID.json without a rank. FOLDER is the environment
 * variable WEFT_METRICS_TARGETS; if it is not set, nothing is written. url:
 * "http://127.0.0.1:41234/metrics". A write failure is reported on standard error. */
void weft_target_file_write(struct weft_target_file *file, const char *role, uint32_t rank,
                            const char *url);

/* Read the file written by such a process of a rank; false: there is no such file now. */
bool weft_target_file_read(const char *folder, const char *role, uint32_t rank,
                           char text_p[WEFT_TARGET_FILE_BYTES]);

/* A zeroed one is allowed. */
void weft_target_file_remove(struct weft_target_file *file);

#endif
