/* The file that says where a process serves its metrics, for who cannot read its standard error: in
 * the format of Prometheus' file_sd_configs, which `weft top --targets` reads, too.
 *
 * It is there while the metrics are: written under another name first, so nobody reads half of it,
 * and removed at the end. Of a process that was killed it stays, until another one of that rank
 * writes its own.
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
    pid_t pid;                         /* that wrote it: a fork's copy leaves it alone */
    char path[WEFT_TARGET_FILE_BYTES]; /* "" = there is none */
};

/* FOLDER/ROLE-RANK.json, or FOLDER/ROLE-PID.json without a rank; FOLDER is WEFT_METRICS_TARGETS of the
 * environment, and without that nothing happens. url: "http://127.0.0.1:41234/metrics". That it
 * cannot be written is said on standard error. */
void weft_target_file_write(struct weft_target_file *file, const char *role, uint32_t rank,
                            const char *url);

/* What such a process of a rank wrote into the folder; false: there is no such file now. */
bool weft_target_file_read(const char *folder, const char *role, uint32_t rank,
                           char text_p[WEFT_TARGET_FILE_BYTES]);

/* A zeroed one is fine. */
void weft_target_file_remove(struct weft_target_file *file);

#endif
