#include "lab/bpf_load.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* libbpf's callback has no user argument. */
static _Thread_local char last_warning[256];

static int keep_warning(enum libbpf_print_level level, const char *format, va_list args)
{
    if (level != LIBBPF_WARN) {
        return 0;
    }
    (void)vsnprintf(last_warning, sizeof(last_warning), format, args);
    last_warning[strcspn(last_warning, "\n")] = '\0';
    return 0;
}

void weft_bpf_words_init(struct weft_bpf_words *words)
{
    last_warning[0] = '\0';
    words->previous = libbpf_set_print(keep_warning);
}

void weft_bpf_words_fini(struct weft_bpf_words *words)
{
    (void)libbpf_set_print(words->previous);
}

static bool kernel_older(int major, int minor, struct utsname *name)
{
    int own_major = 0;
    int own_minor = 0;
    if (uname(name) != 0 || sscanf(name->release, "%d.%d", &own_major, &own_minor) != 2) {
        return false;
    }
    return own_major < major || (own_major == major && own_minor < minor);
}

weft_status weft_bpf_fail(struct weft_error *error, int errno_code, const char *what, int major,
                          int minor)
{
    struct utsname name;
    if ((errno_code == EPERM || errno_code == EACCES) && geteuid() != 0) {
        return weft_fail(error, WEFT_UNSUPPORTED, "%s: loading a BPF program needs root", what);
    }
    if (errno_code == EPERM) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "%s: loading a BPF program is not permitted to this root; it needs "
                         "CAP_BPF and CAP_NET_ADMIN",
                         what);
    }
    if (errno_code == ENOSYS) {
        return weft_fail(error, WEFT_UNSUPPORTED, "%s: this kernel has no BPF", what);
    }
    if (access("/sys/kernel/btf/vmlinux", R_OK) != 0) {
        return weft_fail(error, WEFT_UNSUPPORTED,
                         "%s: this kernel has no type information (/sys/kernel/btf/vmlinux: %s)",
                         what, strerror(errno));
    }
    if (kernel_older(major, minor, &name)) {
        return weft_fail(error, WEFT_UNSUPPORTED, "%s: needs Linux %d.%d; this is %s", what, major,
                         minor, name.release);
    }
    return weft_fail(error, WEFT_IO, "%s: %s%s%s", what, strerror(errno_code),
                     last_warning[0] != '\0' ? "; " : "", last_warning);
}

weft_status weft_bpf_open(const void *bytes, size_t count, const char *name,
                          struct bpf_object **object_p, struct weft_error *error)
{
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = name);
    struct bpf_object *object = bpf_object__open_mem(bytes, count, &options);
    if (object == NULL) {
        return weft_fail(error, WEFT_IO, "%s: %s; %s", name, strerror(errno), last_warning);
    }
    *object_p = object;
    return WEFT_OK;
}
