/* One TCP connection between two network namespaces under weft's DCTCP, and a check of every record
 * of its program in the kernel.
 *
 *     dctcp run SERVER_NETNS CLIENT_NETNS ADDRESS SECONDS [CC_OF_THE_SERVER]
 *     dctcp hold                  registers, prints the name, waits to be killed
 *
 * Prints "key value" lines. *_wrong count records that differ from RFC 8257's formulas, computed
 * here in floating point. */
#include "lab/dctcp.h"

#include "netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7001 };

static const double TURN_S = 0.05; /* a longer turn means that the process was not scheduled */

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int tcp_socket(const char *cc)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, (socklen_t)strlen(cc)) != 0) {
        die(cc);
    }
    return fd;
}

/* Sums of the records of the kernel's program. */
struct seen {
    uint32_t next;
    uint64_t delivered;
    uint64_t marked;
    uint64_t missed; /* records that were overwritten before they were read */
    uint32_t alpha_wrong;
    uint32_t cut_wrong;
    uint32_t loss_wrong;
    uint32_t alpha_last;
    double alpha_sum;
    uint32_t alpha_count;
};

static void check(struct seen *seen, const struct weft_dctcp_record *r)
{
    double unit = 1.0 / WEFT_DCTCP_ONE;
    if (r->what == WEFT_DCTCP_WINDOW) {
        double f = r->delivered > 0 ? (double)r->marked / r->delivered : 0;
        double want = r->alpha_old * unit * 15 / 16 + f / 16;
        seen->alpha_wrong += !(fabs(r->alpha * unit - want) <= 2 * unit);
        seen->delivered += r->delivered;
        seen->marked += r->marked;
        seen->alpha_last = r->alpha;
        /* Skip the first windows: alpha starts at 1. */
        if (seen->alpha_count++ >= 64) {
            seen->alpha_sum += r->alpha * unit;
        }
    } else if (r->what == WEFT_DCTCP_CUT) {
        double want = r->delivered * (1 - r->alpha * unit / 2);
        seen->cut_wrong += !(fabs(r->marked - fmax(want, 2)) <= 1);
    } else if (r->what == WEFT_DCTCP_LOSS) {
        seen->loss_wrong += r->marked != (r->delivered / 2 > 2 ? r->delivered / 2 : 2);
    }
}

static void read_records(const struct weft_dctcp *dctcp, struct seen *seen)
{
    static struct weft_dctcp_record records[WEFT_DCTCP_RECORDS];
    struct weft_error error;
    uint32_t count = 0;
    uint32_t first = 0;
    if (weft_dctcp_read_records(dctcp, records, &count, &first, &error) != WEFT_OK) {
        fprintf(stderr, "dctcp: %s\n", error.text);
        exit(1);
    }
    if ((int32_t)(first - seen->next) > 0) {
        seen->missed += first - seen->next;
        seen->next = first;
    }
    for (; seen->next != first + count; seen->next++) {
        check(seen, &records[seen->next - first]);
    }
}

/* Send as fast as possible, receive in the same loop, and read the records every 20 ms, for
 * `seconds` seconds of running time: while this process is not scheduled, it sends nothing. */
static uint64_t transfer(int from, int to, double seconds, const struct weft_dctcp *dctcp,
                         struct seen *seen)
{
    static char data[65536];
    uint64_t bytes = 0;
    double read_s = 0;
    double now = now_s();
    while (seconds > 0) {
        struct pollfd fds[2] = {{.fd = from, .events = POLLOUT}, {.fd = to, .events = POLLIN}};
        if (poll(fds, 2, 20) < 0) {
            die("poll");
        }
        if (fds[0].revents != 0 && send(from, data, sizeof(data), MSG_DONTWAIT) < 0 &&
            errno != EAGAIN) {
            die("send");
        }
        ssize_t n = fds[1].revents != 0 ? recv(to, data, sizeof(data), MSG_DONTWAIT) : 0;
        bytes += n > 0 ? (uint64_t)n : 0;
        if (now > read_s + 0.02) {
            read_records(dctcp, seen);
            read_s = now;
        }
        double after = now_s();
        seconds -= fmin(after - now, TURN_S);
        now = after;
    }
    /* Let all data in flight arrive, so that every mark is echoed. */
    shutdown(from, SHUT_WR);
    for (ssize_t n = 1; n > 0;) {
        n = recv(to, data, sizeof(data), 0);
        bytes += n > 0 ? (uint64_t)n : 0;
    }
    read_records(dctcp, seen);
    return bytes;
}

static int run(const struct weft_dctcp *dctcp, char **argv, const char *server_cc)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, argv[4], &address.sin_addr) != 1) {
        die(argv[4]);
    }
    go_to(argv[2]);
    int one = 1;
    int listener = tcp_socket(server_cc);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0) {
        die("listen");
    }
    go_to(argv[3]);
    int from = tcp_socket(weft_dctcp_name(dctcp));
    if (connect(from, (struct sockaddr *)&address, sizeof(address)) != 0) {
        die("connect");
    }
    int to = accept(listener, NULL, NULL);
    if (to < 0) {
        die("accept");
    }
    struct seen seen = {0};
    uint64_t bytes = transfer(from, to, atof(argv[5]), dctcp, &seen);
    char cc[16] = "";
    socklen_t cc_bytes = sizeof(cc);
    getsockopt(from, IPPROTO_TCP, TCP_CONGESTION, cc, &cc_bytes);

    struct weft_dctcp_counts counts;
    struct weft_error error;
    if (weft_dctcp_read_counts(dctcp, &counts, &error) != WEFT_OK) {
        fprintf(stderr, "dctcp: %s\n", error.text);
        return 1;
    }
    printf("cc %s\nbytes %llu\nconnections %llu\nwithout_ecn %llu\nwindows %llu\n", cc,
           (unsigned long long)bytes, counts.connections, counts.without_ecn, counts.windows);
    printf("cuts %llu\nlosses %llu\nacks %llu\n", counts.cuts, counts.losses, counts.acks);
    printf("delivered %llu\nmarked %llu\nmissed %llu\n", (unsigned long long)seen.delivered,
           (unsigned long long)seen.marked, (unsigned long long)seen.missed);
    printf("alpha_wrong %u\ncut_wrong %u\nloss_wrong %u\n", seen.alpha_wrong, seen.cut_wrong,
           seen.loss_wrong);
    printf("alpha_last %.6f\nalpha_mean %.6f\n", seen.alpha_last / (double)WEFT_DCTCP_ONE,
           seen.alpha_count > 64 ? seen.alpha_sum / (seen.alpha_count - 64) : 0);
    return 0;
}

/* Whether the kernel has a congestion control of that name. */
static bool available(const char *name)
{
    char text[512] = "";
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_available_congestion_control", "r");
    if (file == NULL || fgets(text, sizeof(text), file) == NULL) {
        die("tcp_available_congestion_control");
    }
    fclose(file);
    return strstr(text, name) != NULL;
}

int main(int argc, char **argv)
{
    bool hold = argc == 2 && strcmp(argv[1], "hold") == 0;
    if (!hold && !(argc >= 6 && strcmp(argv[1], "run") == 0)) {
        fprintf(stderr, "usage: dctcp run SERVER_NETNS CLIENT_NETNS ADDRESS SECONDS [CC] | hold\n");
        return 2;
    }
    struct weft_dctcp *dctcp;
    struct weft_error error;
    weft_status status = weft_dctcp_attach(&dctcp, &error);
    if (status != WEFT_OK) {
        fprintf(stderr, "%s\n", error.text);
        /* A root without CAP_BPF is a fault of the machine that runs the tests. */
        return status == WEFT_UNSUPPORTED && strstr(error.text, "this root") == NULL ? 77 : 1;
    }
    printf("name %s\n", weft_dctcp_name(dctcp));
    fflush(stdout);
    if (hold) {
        pause();
    }
    char name[WEFT_DCTCP_NAME_BYTES];
    snprintf(name, sizeof(name), "%s", weft_dctcp_name(dctcp));
    int result = run(dctcp, argv, argc > 6 ? argv[6] : weft_dctcp_name(dctcp));
    weft_dctcp_detach(dctcp);
    printf("left %d\n", available(name));
    return result;
}
