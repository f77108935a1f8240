/* Find a loopback port below 32768 on which no process listens. The kernel assigns ports from 32768
 * on to other programs, which open and close sockets meanwhile. */
#ifndef TESTS_UNIT_FREE_PORT_H
#define TESTS_UNIT_FREE_PORT_H

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

static inline bool port_is_free(uint16_t port, int type)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_free;
}

static inline uint16_t free_port(void)
{
    static uint32_t draws;
    for (;;) {
        /* Processes with consecutive pids start at distant ports. */
        uint32_t draw = ((uint32_t)getpid() * 4999u + draws++) % 20000u;
        uint16_t port = (uint16_t)(10000 + draw);
        if (port_is_free(port, SOCK_DGRAM) && port_is_free(port, SOCK_STREAM)) {
            return port;
        }
    }
}

#endif
