/* Helpers of test programs that own sockets in several network namespaces. */
#ifndef TESTS_LAB_NETNS_H
#define TESTS_LAB_NETNS_H

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

[[gnu::noreturn]] static inline void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* Enter a network namespace by its path, or by its name for `ip netns`. */
static inline void go_to(const char *netns)
{
    char path[256];
    snprintf(path, sizeof(path), "%s%s", strchr(netns, '/') != NULL ? "" : "/run/netns/", netns);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
        die(path);
    }
    close(fd);
}

#endif
