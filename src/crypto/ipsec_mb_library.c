#include "crypto/ipsec_mb_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAJOR = IMB_VERSION_NUM >> 16 }; /* first number of the version, and of the soname */

static struct weft_ipsec_mb functions;
static char advice[200]; /* at most as much as `weft doctor` prints */

/* memcpy: ISO C has no conversion of an object pointer to a function pointer. */
static bool find(void *handle, const char *name, void *function_p, size_t bytes)
{
    void *address = dlsym(handle, name);
    memcpy(function_p, &address, bytes);
    return address != NULL;
}

static bool find_all(void *handle)
{
    bool found = true;
#define FIND(name) found = find(handle, #name, &functions.name, sizeof(functions.name)) && found;
    WEFT_IPSEC_MB_FUNCTIONS(FIND)
#undef FIND
    return found;
}

/* ---- reasons for not loading ----------------------------------------------------------------- */

static void say_absent(struct weft_provider_aead *about_p, const char *soname)
{
    const char *why = dlerror();
    snprintf(about_p->text, sizeof(about_p->text), "libcrypto; %s cannot be loaded", soname);
    snprintf(
        advice, sizeof(advice),
        "install ipsec-mb %s (Debian: libipsec-mb%d): the cryptography of a packet then takes a "
        "quarter of the time (%s)",
        IMB_VERSION_STR, MAJOR, why != NULL ? why : "");
}

static void say_incomplete(struct weft_provider_aead *about_p, const char *soname)
{
    snprintf(about_p->text, sizeof(about_p->text), "libcrypto; %s lacks a function", soname);
    snprintf(advice, sizeof(advice), "install ipsec-mb %s", IMB_VERSION_STR);
}

static void say_another(struct weft_provider_aead *about_p)
{
    snprintf(about_p->text, sizeof(about_p->text),
             "libcrypto; ipsec-mb is %s, weft was built with %s", functions.imb_get_version_str(),
             IMB_VERSION_STR);
    snprintf(
        advice, sizeof(advice),
        "its structures change with the version: install ipsec-mb %s, or build weft beside the "
        "one that is here (make clean, then make)",
        IMB_VERSION_STR);
}

const struct weft_ipsec_mb *weft_ipsec_mb_load(struct weft_provider_aead *about_p)
{
    char soname[32];
    snprintf(soname, sizeof(soname), "libIPSec_MB.so.%d", MAJOR);
    about_p->advice = advice;
    void *handle = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        say_absent(about_p, soname);
    } else if (!find_all(handle)) {
        say_incomplete(about_p, soname);
    } else if (functions.imb_get_version() != IMB_VERSION_NUM) {
        say_another(about_p);
    } else {
        return &functions;
    }
    return NULL;
}
