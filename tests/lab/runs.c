/* Sends numbered datagrams from one network to another, and counts runs of lost ones:
 *
 *     runs FROM_NETNS TO_NETNS ADDRESS COUNT      prints "sent N lost L runs R"
 *
 * One process sends and receives in turn, a few packets at a time, or one at a time while many are
 * outstanding. So no queue overflows, however late the kernel delivers packets. */
#include "netns.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>

enum { PORT = 9901, AT_A_TIME = 16, IN_FLIGHT = 256, WAIT_MS = 20 };

int main(int argc, char **argv)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (argc != 5 || inet_pton(AF_INET, argv[3], &address.sin_addr) != 1) {
        fprintf(stderr, "usage: runs FROM_NETNS TO_NETNS ADDRESS COUNT\n");
        return 2;
    }
    go_to(argv[2]);
    struct pollfd to = {.fd = socket(AF_INET, SOCK_DGRAM, 0), .events = POLLIN};
    if (to.fd < 0 || bind(to.fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("bind");
    }
    go_to(argv[1]);
    int from = socket(AF_INET, SOCK_DGRAM, 0);
    if (from < 0 || connect(from, (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("connect");
    }
    uint32_t count = (uint32_t)strtoul(argv[4], NULL, 10);
    uint32_t next = 0; /* next expected number */
    uint32_t lost = 0;
    uint32_t runs = 0;
    for (uint32_t sent = 0; sent < count;) {
        for (int i = sent - next < IN_FLIGHT ? AT_A_TIME : 1; i > 0; i--, sent++) {
            if (send(from, &sent, sizeof(sent), 0) != (ssize_t)sizeof(sent)) {
                die("send");
            }
        }
        uint32_t number = 0;
        while (next < sent && poll(&to, 1, WAIT_MS) > 0) {
            if (recv(to.fd, &number, sizeof(number), 0) != (ssize_t)sizeof(number)) {
                die("recv");
            }
            lost += number - next;
            runs += number != next;
            next = number + 1;
        }
    }
    printf("sent %u lost %u runs %u\n", next, lost, runs);
    return 0;
}
