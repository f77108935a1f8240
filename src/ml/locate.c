#include "ml/locate.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A candidate is directory/folder/name; an empty part is omitted, with its slash. */
struct place {
    const char *directory;
    const char *folder;
    size_t folder_bytes;
};

static bool is_file(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && !S_ISDIR(about.st_mode);
}

static bool found_in(struct place place, const char *name, char path_p[WEFT_ML_PATH_BYTES])
{
    static const char *const endings[] = {"", ".zst", ".gz"};
    char path[WEFT_ML_PATH_BYTES];
    for (size_t e = 0; e < WEFT_ARRAY_COUNT(endings); e++) {
        int bytes = snprintf(path, sizeof(path), "%s%s%.*s%s%s%s", place.directory,
                             place.directory[0] != '\0' ? "/" : "", (int)place.folder_bytes,
                             place.folder, place.folder_bytes > 0 ? "/" : "", name, endings[e]);
        if (bytes > 0 && (size_t)bytes < sizeof(path) && is_file(path)) {
            memcpy(path_p, path, (size_t)bytes + 1);
            return true;
        }
    }
    return false;
}

static weft_status not_found(const char *name, const char *const *directories,
                             size_t directory_count, struct weft_error *error)
{
    char places[WEFT_ERROR_BYTES / 2] = "";
    for (size_t d = 0; d < directory_count; d++) {
        if (directories[d] != NULL && directories[d][0] != '\0') {
            size_t used = strlen(places);
            (void)snprintf(places + used, sizeof(places) - used, ", %s", directories[d]);
        }
    }
    return weft_fail(error, WEFT_NOTFOUND,
                     "no data file \"%s\", also not with .zst or .gz%s%s",
                     weft_ml_quote(name, strlen(name)).text,
                     name[0] == '/' ? "" : "; looked in: .", name[0] == '/' ? "" : places);
}

weft_status weft_ml_locate(const char *name, const char *const *directories, size_t directory_count,
                           struct weft_error *error, char path_p[WEFT_ML_PATH_BYTES])
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes >= WEFT_ML_PATH_BYTES - sizeof(".zst")) {
        return weft_fail(error, WEFT_INVALID, "the name of the data file is empty or too long");
    }
    if (found_in((struct place){.directory = "", .folder = ""}, name, path_p)) {
        return WEFT_OK;
    }
    if (name[0] == '/' || name[0] == '.') {
        return not_found(name, NULL, 0, error);
    }
    for (size_t d = 0; d < directory_count; d++) {
        if (directories[d] == NULL || directories[d][0] == '\0') {
            continue;
        }
        struct place place = {.directory = directories[d], .folder = ""};
        struct place inner = {
            .directory = directories[d], .folder = name, .folder_bytes = strcspn(name, ".")};
        if (found_in(place, name, path_p) || found_in(inner, name, path_p)) {
            return WEFT_OK;
        }
    }
    return not_found(name, directories, directory_count, error);
}
