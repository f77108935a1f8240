/* Members of dense rounds, for tests of aggregation boxes: sends DENSE packets from several
 * networks over UDP, repeats what is not answered, and compares every sum.
 *
 *   dense run [-e EPOCH] [-j JOB] [-x EXPONENT] [-s SLOTS] [-r ROUNDS] [-v VALUES] [-t MS] [-2]
 *             [-m ADDRESS,...] [-n MEMBER] [-p PORT] ADDRESS PORT NETNS...
 *       Member i is in the i-th network and sends to ADDRESS, or to the i-th of -m. -t: repeat a
 *       packet after so long. -2: send each packet twice. -n: the first member's number is not 0
 *       but this. -p: members send from this port. Prints "sent N resent N sums N late N
 *       wrong N direct N foreign N ms N"; exit status 1 if not every sum has arrived in time.
 *   dense program ID
 *       exit status 0: the kernel has a BPF program of that number
 *   dense tcx INTERFACE
 *       prints the number of tc programs that are attached to its ingress as links of processes
 */
#include "netns.h"

#include "base/units.h"
#include "wire/weft_wire.h"

#include <arpa/inet.h>
#include <linux/bpf.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

enum {
    MEMBERS_MAX = 64,
    SLOTS_MAX = 1024,
    PACKET_MAX = 1472,
    TIMEOUT_S = 100,
    RECEIVE_BYTES = 8 << 20,
};

struct slot {
    uint32_t round;
    uint64_t sent_ns;
};

struct member {
    struct sockaddr_in box;
    struct slot slots[SLOTS_MAX];
};

static struct settings {
    uint32_t epoch;
    uint32_t job;
    int32_t exponent;
    uint32_t slots;
    uint32_t rounds;
    uint32_t values;
    uint64_t repeat_ns;
    bool twice;
    uint32_t members;
    uint32_t first; /* number of a member */
    uint32_t port;  /* 0: any */
} settings = {
    .job = 1, .slots = 32, .rounds = 10, .values = 352, .repeat_ns = UINT64_C(5) * WEFT_NS_PER_S};

static struct tally {
    uint64_t sent;
    uint64_t resent;
    uint64_t sums;
    uint64_t late; /* of a round that is over */
    uint64_t wrong;
    uint64_t direct;
    uint64_t foreign; /* not a sum for this member */
} tally;

static struct member members[MEMBERS_MAX];
static struct pollfd sockets[MEMBERS_MAX];
static uint64_t open_slots; /* slots of members that are not done */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * WEFT_NS_PER_S + (uint64_t)t.tv_nsec;
}

/* Different for each member, slot, round and index; negative ones, too. */
static int32_t value_of(uint32_t member, uint32_t slot, uint32_t round, uint32_t i)
{
    uint32_t mixed =
        (member + 1) * 2654435761u ^ (slot + 3) * 40503u ^ (round + 7) * 2246822519u ^ i * 97u;
    return (int32_t)(mixed % 2000001u) - 1000000;
}

static void send_packet(uint32_t m, uint32_t slot)
{
    uint8_t bytes[PACKET_MAX];
    const struct weft_wire_agg head = {
        .kind = WEFT_AGG_DENSE,
        .exponent = (int8_t)settings.exponent,
        .job = (uint16_t)settings.job,
        .member = (uint16_t)(settings.first + m),
        .place = slot,
        .epoch = settings.epoch,
        .number = members[m].slots[slot].round,
        .count = (uint16_t)settings.values,
    };
    weft_wire_agg_encode(bytes, &head);
    for (uint32_t i = 0; i < settings.values; i++) {
        weft_wire_store_u32(bytes + WEFT_AGG_HEADER_BYTES + (size_t)4 * i,
                            (uint32_t)value_of(m, slot, head.number, i));
    }
    for (int times = settings.twice ? 2 : 1; times > 0; times--) {
        size_t count = WEFT_AGG_HEADER_BYTES + (size_t)4 * settings.values;
        if (sendto(sockets[m].fd, bytes, count, 0, (struct sockaddr *)&members[m].box,
                   sizeof(members[m].box)) != (ssize_t)count &&
            errno != ENOBUFS && errno != EAGAIN) {
            die("sendto");
        }
        tally.sent++;
    }
    members[m].slots[slot].sent_ns = now_ns();
}

static bool is_right(const uint8_t *values, uint32_t slot, uint32_t round)
{
    for (uint32_t i = 0; i < settings.values; i++) {
        int32_t sum = 0;
        for (uint32_t m = 0; m < settings.members; m++) {
            sum += value_of(m, slot, round, i);
        }
        if ((int32_t)weft_wire_load_u32(values + (size_t)4 * i) != sum) {
            return false;
        }
    }
    return true;
}

static void receive(uint32_t m, const uint8_t *bytes, uint32_t count)
{
    struct weft_wire_agg head;
    if (!weft_wire_agg_decode(bytes, bytes + count, count, &head) || head.kind != WEFT_AGG_SUM ||
        head.member != settings.first + m || head.place >= settings.slots ||
        head.epoch != settings.epoch || head.job != settings.job || head.count != settings.values) {
        tally.foreign++;
        return;
    }
    struct slot *s = &members[m].slots[head.place];
    if (head.number != s->round || s->round == settings.rounds) {
        tally.late++;
        return;
    }
    tally.sums++;
    if (head.flags & WEFT_AGG_DIRECT) {
        tally.direct++;
    } else if (head.exponent != settings.exponent ||
               !is_right(bytes + WEFT_AGG_HEADER_BYTES, head.place, head.number)) {
        tally.wrong++;
    }
    if (++s->round < settings.rounds) {
        send_packet(m, head.place);
    } else {
        open_slots--;
    }
}

static void drain(uint32_t m)
{
    uint8_t bytes[PACKET_MAX];
    ssize_t count;
    while ((count = recv(sockets[m].fd, bytes, sizeof(bytes), MSG_DONTWAIT)) >= 0) {
        receive(m, bytes, (uint32_t)count);
    }
}

static void repeat_due(void)
{
    uint64_t now = now_ns();
    for (uint32_t m = 0; m < settings.members; m++) {
        for (uint32_t slot = 0; slot < settings.slots; slot++) {
            const struct slot *s = &members[m].slots[slot];
            if (s->round < settings.rounds && now - s->sent_ns >= settings.repeat_ns) {
                send_packet(m, slot);
                tally.resent++;
            }
        }
    }
}

static void open_member(uint32_t m, const char *netns, const char *address, const char *port)
{
    int bytes = RECEIVE_BYTES;
    go_to(netns);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    members[m].box.sin_family = AF_INET;
    members[m].box.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    const struct sockaddr_in own = {.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)settings.port)};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) != 0 ||
        bind(fd, (const struct sockaddr *)&own, sizeof(own)) != 0 ||
        inet_pton(AF_INET, address, &members[m].box.sin_addr) != 1) {
        die("member");
    }
    sockets[m] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static int run(char **netns, uint32_t count, const char *address, const char *port, char *each)
{
    settings.members = count;
    for (uint32_t m = 0; m < count; m++) {
        char *own = each != NULL ? strsep(&each, ",") : NULL;
        open_member(m, netns[m], own != NULL ? own : address, port);
    }
    uint64_t start = now_ns();
    open_slots = (uint64_t)count * settings.slots;
    for (uint32_t slot = 0; slot < settings.slots; slot++) {
        for (uint32_t m = 0; m < count; m++) {
            send_packet(m, slot);
        }
    }
    while (open_slots > 0 && now_ns() - start < TIMEOUT_S * WEFT_NS_PER_S) {
        (void)poll(sockets, count, 5);
        for (uint32_t m = 0; m < count; m++) {
            drain(m);
        }
        repeat_due();
    }
    printf(
        "sent %llu resent %llu sums %llu late %llu wrong %llu direct %llu foreign %llu ms %llu\n",
        (unsigned long long)tally.sent, (unsigned long long)tally.resent,
        (unsigned long long)tally.sums, (unsigned long long)tally.late,
        (unsigned long long)tally.wrong, (unsigned long long)tally.direct,
        (unsigned long long)tally.foreign,
        (unsigned long long)((now_ns() - start) / WEFT_NS_PER_MS));
    return open_slots > 0;
}

static int has_program(const char *id)
{
    union bpf_attr attributes = {.prog_id = (uint32_t)strtoul(id, NULL, 10)};
    return syscall(SYS_bpf, BPF_PROG_GET_FD_BY_ID, &attributes, sizeof(attributes)) >= 0 ? 0 : 1;
}

/* The kernel's headers may be older than TCX; the index of the interface is in place of a
 * descriptor. */
static int print_tcx(const char *interface)
{
    enum { TCX_INGRESS = 46 };
    union bpf_attr attributes = {
        .query = {.target_fd = if_nametoindex(interface), .attach_type = TCX_INGRESS}};
    if (syscall(SYS_bpf, BPF_PROG_QUERY, &attributes, sizeof(attributes)) != 0) {
        die("BPF_PROG_QUERY");
    }
    printf("%u\n", attributes.query.prog_cnt);
    return 0;
}

static uint32_t number(const char *text, uint32_t most)
{
    unsigned long value = strtoul(text, NULL, 10);
    return (uint32_t)(value < most ? value : most);
}

int main(int argc, char **argv)
{
    char *each = NULL;
    int letter;
    if (argc == 3 && strcmp(argv[1], "program") == 0) {
        return has_program(argv[2]);
    }
    if (argc == 3 && strcmp(argv[1], "tcx") == 0) {
        return print_tcx(argv[2]);
    }
    argc--;
    argv++;
    while ((letter = getopt(argc, argv, "e:j:x:s:r:v:t:2m:n:p:")) != -1) {
        switch (letter) {
        case 'e':
            settings.epoch = number(optarg, UINT32_MAX);
            break;
        case 'j':
            settings.job = number(optarg, UINT16_MAX);
            break;
        case 'x':
            settings.exponent = atoi(optarg);
            break;
        case 's':
            settings.slots = number(optarg, SLOTS_MAX);
            break;
        case 'r':
            settings.rounds = number(optarg, UINT32_MAX);
            break;
        case 'v':
            settings.values = number(optarg, WEFT_AGG_VALUES_MAX);
            break;
        case 't':
            settings.repeat_ns = number(optarg, 100000) * WEFT_NS_PER_MS;
            break;
        case '2':
            settings.twice = true;
            break;
        case 'm':
            each = optarg;
            break;
        case 'n':
            settings.first = number(optarg, MEMBERS_MAX - 1);
            break;
        case 'p':
            settings.port = number(optarg, UINT16_MAX);
            break;
        default:
            return 2;
        }
    }
    if (argc < optind + 3 || argc - optind - 2 > MEMBERS_MAX) {
        fprintf(stderr, "usage: dense run [options] ADDRESS PORT NETNS...\n");
        return 2;
    }
    return run(argv + optind + 2, (uint32_t)(argc - optind - 2), argv[optind], argv[optind + 1],
               each);
}
