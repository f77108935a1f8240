#include "file/sync.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

weft_status weft_file_sync_name(const char *path)
{
    char *copy = strdup(path); /* dirname() changes its argument */
    int fd = copy != NULL ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(copy);
    bool good = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
    int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    errno = why;
    return good ? WEFT_OK : WEFT_IO;
}
