#include "lab/background_member.h"

#include "lab/background.h"
#include "lab/build.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FLOWS_MAX = 2000, SEED = 1, READY_FD = 3 };

struct member {
    struct weft_flow_sizes sizes;
    struct weft_background_report report;
    int netns[WEFT_LAB_HOSTS_MAX];
    char addresses[WEFT_LAB_HOSTS_MAX][WEFT_LAB_ADDRESS_BYTES];
};

static weft_status open_hosts(struct member *m, uint32_t hosts, struct weft_error *error)
{
    for (uint32_t host = 0; host < hosts; host++) {
        char node[WEFT_LAB_NODE_BYTES];
        char path[64];
        weft_lab_host_name(host, node);
        weft_lab_host_address(host, m->addresses[host]);
        snprintf(path, sizeof(path), WEFT_LAB_PRIVATE "/netns/%s", node);
        m->netns[host] = open(path, O_RDONLY | O_CLOEXEC);
        if (m->netns[host] < 0) {
            return weft_fail(error, WEFT_IO, "background: %s: %s", path, strerror(errno));
        }
    }
    return WEFT_OK;
}

static weft_status run(const struct weft_lab_spec *spec, struct weft_error *error)
{
    static struct member m;
    struct weft_background_config config = {
        .hosts = spec->hosts,
        .netns = m.netns,
        .addresses = (const char(*)[WEFT_LAB_ADDRESS_BYTES])m.addresses,
        .sizes = &m.sizes,
        .rate_bps = spec->rate_bps,
        .seed = SEED,
        .port = WEFT_BACKGROUND_PORT,
        .flows_max = FLOWS_MAX,
        .duration_ns = WEFT_NEVER,
        .stop_fd = -1,
        .ready_fd = READY_FD,
    };
    weft_status status = weft_background_parse(spec->background, &m.sizes, &config.load_ppm, error);
    if (status == WEFT_OK) {
        status = open_hosts(&m, spec->hosts, error);
    }
    return status == WEFT_OK ? weft_background_run(&config, &m.report, error) : status;
}

/* Runs in the child. It inherits nothing from the holder: neither its dialogue with the process
 * that made the lab nor the terminal. Its error text is sent through the pipe. */
[[gnu::noreturn]] static void member_run(const struct weft_lab_spec *spec, int said)
{
    struct weft_error error = {.text = ""};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "weft-background");
    if (dup2(said, READY_FD) != READY_FD) {
        _exit(1);
    }
    (void)close_range(READY_FD + 1, UINT_MAX, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < READY_FD; fd++) {
        (void)dup2(null, fd);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    if (run(spec, &error) != WEFT_OK) {
        (void)!write(READY_FD, error.text, strlen(error.text));
    }
    _exit(1);
}

/* Read the child's report: 'r' on success, else an error text, or end of file if it died. */
static weft_status hear_member(int said, struct weft_error *error)
{
    char text[WEFT_ERROR_BYTES];
    ssize_t count;
    while ((count = read(said, text, sizeof(text) - 1)) < 0 && errno == EINTR) {
    }
    if (count == 1 && text[0] == 'r') {
        return WEFT_OK;
    }
    text[count > 0 ? count : 0] = '\0';
    return weft_fail(error, WEFT_IO, "%s", count > 0 ? text : "background: its process has ended");
}

weft_status weft_lab_background_start(const struct weft_lab_spec *spec, pid_t *pid_p,
                                      struct weft_error *error)
{
    int said[2];
    if (spec->background[0] == '\0') {
        *pid_p = 0;
        return WEFT_OK;
    }
    if (pipe2(said, O_CLOEXEC) != 0) {
        return weft_fail(error, WEFT_IO, "background: %s", strerror(errno));
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        member_run(spec, said[1]);
    }
    int why = errno;
    close(said[1]);
    weft_status status = pid > 0 ? hear_member(said[0], error)
                                 : weft_fail(error, WEFT_IO, "background: %s", strerror(why));
    close(said[0]);
    *pid_p = pid;
    return status;
}
