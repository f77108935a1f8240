#include "lab/cluster.h"

#include "base/assert.h"
#include "lab/registry.h"
#include "lab/spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lookup ---------------------------------------------------------------------------------- */

static void names_of(const cJSON *labs, char *out, size_t bytes)
{
    size_t used = 0;
    const cJSON *item;
    out[0] = '\0';
    cJSON_ArrayForEach(item, labs)
    {
        int wrote = snprintf(out + used, bytes - used, "%s%s", used > 0 ? ", " : "",
                             weft_lab_fact_text(item, "name"));
        if (wrote < 0 || (size_t)wrote >= bytes - used) {
            break;
        }
        used += (size_t)wrote;
    }
}

static weft_status not_found(const char *name, struct weft_error *error)
{
    char names[200];
    cJSON *labs = weft_lab_registry_list();
    names_of(labs, names, sizeof(names));
    cJSON_Delete(labs);
    return weft_fail(error, WEFT_NOTFOUND,
                     "no lab named \"%.40s\" is up (%s%s); `weft lab up NAME` makes one", name,
                     names[0] != '\0' ? "there are: " : "none is", names);
}

weft_status weft_lab_find(const char *name, struct weft_lab_info *info_p, struct weft_error *error)
{
    cJSON *facts = weft_lab_registry_get(name);
    if (facts == NULL) {
        return not_found(name, error);
    }
    weft_status status = WEFT_OK;
    if (strcmp(weft_lab_fact_text(facts, "state"), "up") != 0) {
        status = weft_fail(error, WEFT_STATE, "lab %s is still being set up", name);
    } else {
        *info_p = (struct weft_lab_info){
            .holder = (pid_t)weft_lab_fact_u64(facts, "holder"),
            .hosts = (uint32_t)weft_lab_fact_u64(facts, "hosts"),
            .rate_bps = weft_lab_fact_u64(facts, "rate_bps"),
            .buffer_bytes = weft_lab_fact_u64(facts, "buffer_bytes"),
            .loss_ppm = (uint32_t)weft_lab_fact_u64(facts, "loss_ppm"),
            .ecn_bytes = (uint32_t)weft_lab_fact_u64(facts, "ecn_bytes"),
            .base_rtt_ns = weft_lab_fact_u64(facts, "base_rtt_ns"),
            .hysteresis =
                cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(facts, "htb_hysteresis")),
            .offload = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(facts, "offload")),
        };
        info_p->uneven =
            cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(facts, "links_that_differ")) > 0 ||
            weft_lab_fact_text(facts, "trace")[0] != '\0';
        snprintf(info_p->name, sizeof(info_p->name), "%s", name);
        snprintf(info_p->settings, sizeof(info_p->settings), "%s",
                 weft_lab_fact_text(facts, "settings"));
        snprintf(info_p->topology, sizeof(info_p->topology), "%s",
                 weft_lab_fact_text(facts, "topology"));
    }
    cJSON_Delete(facts);
    return status;
}

/* ---- entering -------------------------------------------------------------------------------- */

static weft_status no_entry(const struct weft_lab_info *info, const char *what,
                            struct weft_error *error)
{
    int why = errno;
    const char *advice = why == ENOENT || why == ESRCH   ? "; has it ended? (weft lab status)"
                         : why == EPERM || why == EACCES ? "; this needs root: sudo weft lab ..."
                                                         : "";
    return weft_fail(error, WEFT_IO, "cannot enter %s of lab %s: %s%s", what, info->name,
                     strerror(why), advice);
}

/* Open a namespace of the holder, or of a node by its path in the holder's file system. */
static int open_of(const struct weft_lab_info *info, const char *path)
{
    char full[96];
    snprintf(full, sizeof(full), "/proc/%d/%s", (int)info->holder, path);
    return open(full, O_RDONLY | O_CLOEXEC);
}

static int open_network(const struct weft_lab_info *info, const char *node)
{
    char path[64];
    snprintf(path, sizeof(path), "root/run/weft/netns/%s", node);
    return open_of(info, path);
}

weft_status weft_lab_netns(const struct weft_lab_info *info, uint32_t host, int *fd_p,
                           struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    WEFT_ASSERT(host < info->hosts);
    weft_lab_host_name(host, node);
    int fd = open_network(info, node);
    if (fd < 0) {
        return no_entry(info, node, error);
    }
    *fd_p = fd;
    return WEFT_OK;
}

/* /sys shows the interfaces of the network namespace in which it was mounted. It is mounted
 * again for this process alone, with the mounts below it. If that fails, /sys stays the
 * machine's: only programs that list /sys/class/net are affected. */
static void mount_sys(void)
{
    static const char *const below[] = {"/sys/fs/bpf", "/sys/fs/cgroup"};
    int kept[2];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0) {
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        kept[i] = open(below[i], O_PATH | O_CLOEXEC);
    }
    bool mounted = mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
    for (size_t i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", kept[i]);
        if (kept[i] >= 0 && mounted) {
            (void)mount(path, below[i], NULL, MS_BIND | MS_REC, NULL);
        }
        if (kept[i] >= 0) {
            close(kept[i]);
        }
    }
}

/* Every host needs a unique host name: programs that treat processes with one host name as
 * neighbours (MPI's shared memory) must not do so. */
static bool take_name(const char *name)
{
    return unshare(CLONE_NEWUTS) == 0 && sethostname(name, strlen(name)) == 0;
}

/* Enter the network first: its path is in the holder's file system, accessed through /proc,
 * which is no longer possible after the mount namespace has changed. */
static weft_status enter_node(const struct weft_lab_info *info, const char *node,
                              struct weft_error *error)
{
    char folder[PATH_MAX];
    bool at_home = getcwd(folder, sizeof(folder)) != NULL;
    int net = open_network(info, node);
    int view = net >= 0 ? open_of(info, "ns/mnt") : -1;
    bool good = view >= 0 && setns(net, CLONE_NEWNET) == 0 && setns(view, CLONE_NEWNS) == 0 &&
                take_name(node);
    weft_status status = good ? WEFT_OK : no_entry(info, node, error);
    if (net >= 0) {
        close(net);
    }
    if (view >= 0) {
        close(view);
    }
    if (good) {
        mount_sys();
        /* The files are the same: the working directory is restored. */
        good = at_home && chdir(folder) == 0;
    }
    return status;
}

static weft_status children_to(const struct weft_lab_info *info, struct weft_error *error)
{
    int members = open_of(info, "ns/pid");
    bool good = members >= 0 && setns(members, CLONE_NEWPID) == 0;
    weft_status status = good ? WEFT_OK : no_entry(info, "the processes", error);
    if (members >= 0) {
        close(members);
    }
    return status;
}

weft_status weft_lab_enter(const struct weft_lab_info *info, uint32_t host,
                           struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    WEFT_ASSERT(host < info->hosts);
    weft_lab_host_name(host, node);
    weft_status status = children_to(info, error);
    return status == WEFT_OK ? enter_node(info, node, error) : status;
}

/* ---- forking --------------------------------------------------------------------------------- */

/* Runs in the child. `caller` becomes readable when the caller has exited: PR_SET_PDEATHSIG does
 * not cover an earlier exit, and getppid() is 0 in another PID namespace. */
static void begin_member(const struct weft_lab_info *info, const char *node, int caller, int said)
{
    struct weft_error error = {.text = ""};
    struct pollfd ended = {.fd = caller, .events = POLLIN};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (poll(&ended, 1, 0) != 0) {
        _exit(127);
    }
    close(caller);
    if (enter_node(info, node, &error) != WEFT_OK) {
        ssize_t wrote = write(said, error.text, strlen(error.text));
        _exit(wrote > 0 ? 126 : 127);
    }
    close(said);
}

/* Read the child's report: end of file alone if it is on its host, else an error text. */
static weft_status hear_member(int said, pid_t pid, struct weft_error *error)
{
    char text[WEFT_ERROR_BYTES];
    ssize_t count;
    while ((count = read(said, text, sizeof(text) - 1)) < 0 && errno == EINTR) {
    }
    if (count == 0) {
        return WEFT_OK;
    }
    text[count > 0 ? count : 0] = '\0';
    waitpid(pid, NULL, 0);
    return weft_fail(error, WEFT_IO, "%s", text);
}

/* fork() with the child as a member: the caller's PID namespace for children is changed, and
 * restored. */
static weft_status fork_member(const struct weft_lab_info *info, pid_t *pid_p,
                               struct weft_error *error)
{
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    weft_status status =
        own < 0 ? no_entry(info, "the processes", error) : children_to(info, error);
    if (status == WEFT_OK) {
        fflush(NULL);
        *pid_p = fork();
        if (*pid_p < 0) {
            status = weft_fail(error, WEFT_IO, "cannot start a process in lab %s: %s%s", info->name,
                               strerror(errno),
                               errno == ENOMEM ? " (has the lab ended? weft lab status)" : "");
        }
        if (*pid_p != 0 && setns(own, CLONE_NEWPID) != 0) {
            status =
                weft_fail(error, WEFT_IO, "cannot leave lab %s: %s", info->name, strerror(errno));
        }
    }
    if (own >= 0) {
        close(own);
    }
    return status;
}

weft_status weft_lab_fork_node(const struct weft_lab_info *info, const char *node, pid_t *pid_p,
                               struct weft_error *error)
{
    int said[2];
    int caller = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (caller < 0 || pipe2(said, O_CLOEXEC) != 0) {
        weft_status status =
            weft_fail(error, WEFT_IO, "cannot watch a process: %s", strerror(errno));
        if (caller >= 0) {
            close(caller);
        }
        return status;
    }
    pid_t pid = -1;
    weft_status status = fork_member(info, &pid, error);
    if (status == WEFT_OK && pid == 0) {
        close(said[0]);
        begin_member(info, node, caller, said[1]);
        *pid_p = 0;
        return WEFT_OK;
    }
    close(said[1]);
    close(caller);
    if (status == WEFT_OK) {
        status = hear_member(said[0], pid, error);
    }
    close(said[0]);
    if (status == WEFT_OK) {
        *pid_p = pid;
    }
    return status;
}

weft_status weft_lab_fork(const struct weft_lab_info *info, uint32_t host, pid_t *pid_p,
                          struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    WEFT_ASSERT(host < info->hosts);
    weft_lab_host_name(host, node);
    return weft_lab_fork_node(info, node, pid_p, error);
}
