#include "cli/tcp_cc.h"

#include "cli/options.h"

#include "lab/dctcp.h"

#include <string.h>

/* Owned by the process: the kernel detaches it when the process ends. */
static struct weft_dctcp *attached;
static char attached_name[WEFT_DCTCP_NAME_BYTES];

int weft_cli_tcp_cc(const char *verb, const char *option, const char **name_p)
{
    struct weft_error error = {.text = ""};
    if (*name_p == NULL || strcmp(*name_p, "dctcp") != 0) {
        return WEFT_OPTIONS_RUN;
    }
    if (attached == NULL && weft_dctcp_open(&attached, attached_name, &error) != WEFT_OK) {
        return weft_cli_fail(verb, "--%s %s", option, error.text);
    }
    *name_p = attached_name;
    return WEFT_OPTIONS_RUN;
}

const char *weft_cli_tcp_cc_name(const char *name)
{
    return name == NULL ? "default" : strcmp(name, attached_name) == 0 ? "dctcp" : name;
}
