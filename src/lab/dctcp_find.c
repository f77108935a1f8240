#include "lab/dctcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Tests by using it, which also loads its module if there is one. */
static int kernel_has(const char *name)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return 0;
    }
    int has = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
    (void)close(fd);
    return has;
}

weft_status weft_dctcp_open(struct weft_dctcp **dctcp_p, char name_p[static WEFT_DCTCP_NAME_BYTES],
                            struct weft_error *error)
{
    if (kernel_has("dctcp")) {
        *dctcp_p = NULL;
        (void)strcpy(name_p, "dctcp");
        return WEFT_OK;
    }
    weft_status status = weft_dctcp_attach(dctcp_p, error);
    if (status == WEFT_OK) {
        (void)strcpy(name_p, weft_dctcp_name(*dctcp_p));
    }
    return status;
}
