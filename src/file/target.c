#include "file/target.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MAX = 40 }; /* as in Linux */

/* Length of the part of the path that is its directory: "a/" of "a/b". */
static size_t folder_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash + 1 - path) : 0;
}

/* Replace the name of a link by what it contains. 1 = done, 0 = it is no link, -1 = see errno. */
static int follow_link(char name[PATH_MAX])
{
    char content[PATH_MAX];
    ssize_t bytes = readlink(name, content, sizeof(content));
    if (bytes < 0) {
        return errno == EINVAL || errno == ENOENT ? 0 : -1;
    }
    size_t front = bytes > 0 && content[0] == '/' ? 0 : folder_bytes(name);
    if (front + (size_t)bytes >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name + front, content, (size_t)bytes);
    name[front + (size_t)bytes] = '\0';
    return 1;
}

/* Follow the links of the last component. */
static weft_status follow_links(char name[PATH_MAX])
{
    int followed = 1;
    for (int links = 0; followed > 0 && links <= LINKS_MAX; links++) {
        followed = follow_link(name);
    }
    errno = followed > 0 ? ELOOP : errno;
    return followed == 0 ? WEFT_OK : WEFT_IO;
}

/* The path of a new file in its resolved directory; NULL: see errno. */
static char *new_target(const char name[PATH_MAX])
{
    char folder[PATH_MAX + 1] = "";
    size_t front = folder_bytes(name);
    const char *last = name + front;
    if (last[0] == '\0') {
        errno = ENOENT;
        return NULL;
    }
    memcpy(folder, name, front);
    folder[front] = '.';
    char *resolved = realpath(folder, NULL);
    if (resolved == NULL) {
        return NULL;
    }
    size_t bytes = strlen(resolved) + strlen(last) + 2;
    char *target = malloc(bytes);
    if (target != NULL) {
        snprintf(target, bytes, "%s/%s", strcmp(resolved, "/") != 0 ? resolved : "", last);
    }
    free(resolved);
    return target;
}

weft_status weft_file_target(const char *path, char **target_p)
{
    char name[PATH_MAX];
    char *target = realpath(path, NULL);
    if (target == NULL) {
        if (strlen(path) >= sizeof(name)) {
            errno = ENAMETOOLONG;
            return WEFT_IO;
        }
        strcpy(name, path);
        target = follow_links(name) == WEFT_OK ? new_target(name) : NULL;
    }
    if (target == NULL) {
        return WEFT_IO;
    }
    *target_p = target;
    return WEFT_OK;
}
