#include "metrics/target_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool write_whole(const char *path, const char *role, uint32_t rank, const char *url)
{
    char other[WEFT_TARGET_FILE_BYTES + 8];
    const char *at = strncmp(url, "http://", 7) == 0 ? url + 7 : url;
    snprintf(other, sizeof(other), "%s.new", path);
    FILE *stream = fopen(other, "we");
    if (stream == NULL) {
        return false;
    }
    fprintf(stream, "[{\"targets\": [\"%.*s\"], \"labels\": {\"role\": \"%s\"",
            (int)strcspn(at, "/"), at, role);
    if (rank != WEFT_TARGET_NO_RANK) {
        fprintf(stream, ", \"rank\": \"%u\"", rank);
    }
    fprintf(stream, "}}]\n");
    return fclose(stream) == 0 && rename(other, path) == 0;
}

void weft_target_file_write(struct weft_target_file *file, const char *role, uint32_t rank,
                            const char *url)
{
    const char *folder = getenv("WEFT_METRICS_TARGETS");
    *file = (struct weft_target_file){.pid = getpid()};
    if (folder == NULL || folder[0] == '\0') {
        return;
    }
    unsigned number = rank != WEFT_TARGET_NO_RANK ? rank : (unsigned)file->pid;
    int bytes = snprintf(file->path, sizeof(file->path), "%s/%s-%u.json", folder, role, number);
    if (bytes >= (int)sizeof(file->path) || !write_whole(file->path, role, rank, url)) {
        fprintf(stderr,
                "weft: %s: cannot write %s-%u.json to %.200s, the folder of WEFT_METRICS_TARGETS\n",
                role, role, number, folder);
        file->path[0] = '\0';
    }
}

bool weft_target_file_read(const char *folder, const char *role, uint32_t rank,
                           char text_p[WEFT_TARGET_FILE_BYTES])
{
    char path[WEFT_TARGET_FILE_BYTES];
    snprintf(path, sizeof(path), "%s/%s-%u.json", folder, role, rank);
    FILE *stream = fopen(path, "re");
    if (stream == NULL) {
        return false;
    }
    text_p[fread(text_p, 1, WEFT_TARGET_FILE_BYTES - 1, stream)] = '\0';
    (void)fclose(stream);
    return true;
}

void weft_target_file_remove(struct weft_target_file *file)
{
    if (file->path[0] != '\0' && getpid() == file->pid) {
        (void)unlink(file->path);
    }
    file->path[0] = '\0';
}
