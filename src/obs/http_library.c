#include "obs/http_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

/* The interface declared by <microhttpd.h> from about 0.9.40 to at least 1.0. */
static const char library[] = "libmicrohttpd.so.12";

static struct weft_microhttpd functions;
static const char *missing = "";
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* memcpy: ISO C has no conversion of an object pointer to a function pointer. */
static void find(void *handle, const char *name, void *function_p, size_t bytes)
{
    void *address = dlsym(handle, name);
    if (address == NULL) {
        missing = "libmicrohttpd lacks a function; install libmicrohttpd 0.9.75 or later";
    }
    memcpy(function_p, &address, bytes);
}

static void load(void)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        missing = "libmicrohttpd.so.12 cannot be loaded; install it (Debian: libmicrohttpd12)";
        return;
    }
#define FIND(name) find(handle, "MHD_" #name, &functions.name, sizeof(functions.name));
    WEFT_MICROHTTPD_FUNCTIONS(FIND)
#undef FIND
}

const struct weft_microhttpd *weft_microhttpd_load(const char **why_p)
{
    (void)pthread_once(&once, load);
    *why_p = missing;
    return missing[0] == '\0' ? &functions : NULL;
}
