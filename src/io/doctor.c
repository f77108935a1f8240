#include "io/doctor.h"

#include "base/assert.h"
#include "io/clock.h"
#include "io/poller.h"
#include "io/sock_addr.h"
#include "io/udp/probe.h"

#include <net/if.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    BUFFER_BYTES_WANTED = 4 << 20,
    ETHERNET_MTU = 1500,
    INTERFACES_MAX = 8,
    SLEEPS = 21,
    SLEEP_NS = 50000,
    LATE_NS_WARN = 500000, /* above this, timers and not the network limit how soon losses are
                            * detected */
    CLOCK_READS = 2000,
    CLOCK_NS_WARN = 200, /* above this, a reading is a system call */
};

const char *weft_fact_state_name(enum weft_fact_state state)
{
    static const char *const names[] = {"ok", "warn", "missing"};
    WEFT_ASSERT((size_t)state < WEFT_ARRAY_COUNT(names));
    return names[state];
}

void weft_doctor_add(struct weft_doctor *doctor, const char *name, enum weft_fact_state state,
                     const char *advice, const char *format, ...)
{
    if (doctor->count == WEFT_FACTS_MAX) {
        return; /* a host with many interfaces; those are added last */
    }
    struct weft_fact *fact = &doctor->facts[doctor->count++];
    *fact = (struct weft_fact){.state = state};
    (void)snprintf(fact->name, sizeof(fact->name), "%s", name);
    if (state != WEFT_FACT_OK) {
        (void)snprintf(fact->advice, sizeof(fact->advice), "%s", advice);
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(fact->value, sizeof(fact->value), format, args);
    va_end(args);
}

static enum weft_fact_state warn_unless(bool good)
{
    return good ? WEFT_FACT_OK : WEFT_FACT_WARN;
}

static void add_switch(struct weft_doctor *doctor, const char *name, bool on, const char *advice)
{
    weft_doctor_add(doctor, name, warn_unless(on), advice, "%s", on ? "yes" : "no");
}

static void check_host(struct weft_doctor *doctor)
{
    struct utsname name;
    if (uname(&name) == 0) {
        weft_doctor_add(doctor, "kernel", WEFT_FACT_OK, "", "%.60s", name.release);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    weft_doctor_add(doctor, "cores", warn_unless(cores >= 2),
                    "all processes of a job share one core; timings will vary", "%ld", cores);
}

static void check_limit(struct weft_doctor *doctor, const char *name, const char *path,
                        const char *advice)
{
    long long value = -1;
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%lld", &value) != 1) {
            value = -1;
        }
        (void)fclose(file);
    }
    if (value < 0) {
        weft_doctor_add(doctor, name, WEFT_FACT_WARN, "cannot be read; see the granted size below",
                        "unknown");
    } else {
        weft_doctor_add(doctor, name, warn_unless(value >= BUFFER_BYTES_WANTED), advice, "%lld",
                        value);
    }
}

static void check_limits(struct weft_doctor *doctor)
{
    check_limit(doctor, "recv_buffer_max_bytes", "/proc/sys/net/core/rmem_max",
                "bursts of many senders overflow it: sysctl -w net.core.rmem_max=4194304");
    check_limit(doctor, "send_buffer_max_bytes", "/proc/sys/net/core/wmem_max",
                "fewer bursts can wait in the kernel: sysctl -w net.core.wmem_max=4194304");
}

static void check_udp(struct weft_doctor *doctor)
{
    struct weft_probe probe;
    struct weft_error error;
    if (weft_probe_run("127.0.0.1", &probe, &error) != WEFT_OK) {
        weft_doctor_add(doctor, "udp_ipv4", WEFT_FACT_MISSING, error.text, "no");
        return;
    }
    bool all = probe.datagrams == WEFT_PROBE_PACKETS;
    weft_doctor_add(
        doctor, "udp_ipv4", all ? WEFT_FACT_OK : WEFT_FACT_MISSING,
        "datagrams sent to 127.0.0.1 do not arrive: is lo up, does a packet filter drop them?",
        "%u of %d datagrams arrived", probe.datagrams, WEFT_PROBE_PACKETS);
    /* The kernel reports twice what it grants, because it adds room for its own overhead. */
    weft_doctor_add(doctor, "recv_buffer_granted_bytes",
                    warn_unless(probe.socket.recv_buffer_bytes / 2 >= BUFFER_BYTES_WANTED),
                    "raise net.core.rmem_max", "%u", probe.socket.recv_buffer_bytes / 2);
    weft_doctor_add(doctor, "send_buffer_granted_bytes",
                    warn_unless(probe.socket.send_buffer_bytes / 2 >= BUFFER_BYTES_WANTED),
                    "raise net.core.wmem_max", "%u", probe.socket.send_buffer_bytes / 2);
    add_switch(doctor, "gso", probe.gso,
               "each datagram costs a system call; Linux 4.18 or newer has UDP_SEGMENT");
    add_switch(doctor, "gro", probe.gro,
               "each datagram is received separately; Linux 5.0 or newer has UDP_GRO");
    add_switch(doctor, "ecn", probe.ecn,
               "congestion is detected by delay and loss only: marks are cleared on the path or "
               "not reported");
    add_switch(doctor, "timestamps", probe.timestamps,
               "latencies include the time until weft reads the socket");
}

static void check_ipv6(struct weft_doctor *doctor)
{
    struct weft_probe probe;
    bool works =
        weft_probe_run("::1", &probe, NULL) == WEFT_OK && probe.datagrams == WEFT_PROBE_PACKETS;
    add_switch(doctor, "udp_ipv6", works, "use 127.0.0.1; ::1 does not work on this host");
}

static void check_port(struct weft_doctor *doctor, uint16_t port)
{
    struct weft_addr addr;
    struct weft_sock_request request = {.buffer_bytes = BUFFER_BYTES_WANTED};
    struct weft_sock_facts facts;
    struct weft_error error = {.text = ""};
    int fd = -1;
    weft_status status = weft_sock_addr_parse("127.0.0.1", port, &addr, &error);
    if (status == WEFT_OK) {
        status = weft_sock_open(&addr, &request, &fd, &facts, &error);
    }
    if (status == WEFT_OK) {
        (void)close(fd);
    }
    char name[sizeof(((struct weft_fact *)0)->name)];
    (void)snprintf(name, sizeof(name), "port_%u", (unsigned)port);
    weft_doctor_add(doctor, name, status == WEFT_OK ? WEFT_FACT_OK : WEFT_FACT_MISSING, error.text,
                    "%s", status == WEFT_OK ? "free" : "not free");
}

/* Nearest rank of an odd number of values, by selection: SLEEPS is small. */
static uint64_t median(const uint64_t *values, int count)
{
    for (int i = 0; i < count; i++) {
        int below = 0;
        int equal = 0;
        for (int j = 0; j < count; j++) {
            below += values[j] < values[i];
            equal += values[j] == values[i];
        }
        if (below <= count / 2 && below + equal > count / 2) {
            return values[i];
        }
    }
    return 0;
}

/* How late a sleep of SLEEP_NS ends, with the calls that weft uses. */
static bool measure_lateness(uint64_t *late_ns_p)
{
    struct weft_poller poller;
    weft_poller_init(&poller);
    bool works = weft_poller_open(&poller, -1) == WEFT_OK;
    uint64_t late_ns[SLEEPS];
    for (int i = 0; i < SLEEPS && works; i++) {
        uint64_t end_ns = weft_clock_now_ns() + SLEEP_NS;
        (void)weft_poller_wait(&poller, end_ns);
        uint64_t now_ns = weft_clock_now_ns();
        late_ns[i] = now_ns > end_ns ? now_ns - end_ns : 0;
    }
    weft_poller_close(&poller);
    if (works) {
        *late_ns_p = median(late_ns, SLEEPS);
    }
    return works;
}

static void check_time(struct weft_doctor *doctor)
{
    uint64_t late_ns;
    if (measure_lateness(&late_ns)) {
        weft_doctor_add(
            doctor, "sleep_late_us", warn_unless(late_ns < LATE_NS_WARN),
            "timers fire late: the host is busy, or its virtual machine has coarse timers",
            "%.1f (median of %d sleeps of %d us)", (double)late_ns / 1e3, SLEEPS, SLEEP_NS / 1000);
    } else {
        weft_doctor_add(doctor, "sleep_late_us", WEFT_FACT_MISSING,
                        "epoll, eventfd or timerfd is refused here; does a sandbox forbid them?",
                        "no sleep");
    }
    uint64_t start_ns = weft_clock_now_ns();
    uint64_t end_ns = start_ns;
    for (int i = 0; i < CLOCK_READS; i++) {
        end_ns = weft_clock_now_ns();
    }
    uint64_t read_ns = (end_ns - start_ns) / CLOCK_READS;
    weft_doctor_add(
        doctor, "clock_read_ns", warn_unless(read_ns < CLOCK_NS_WARN),
        "reading the clock is a system call here; a clocksource such as tsc or kvm-clock helps",
        "%llu", (unsigned long long)read_ns);
}

static void check_interfaces(struct weft_doctor *doctor)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct if_nameindex *list = if_nameindex();
    int seen = 0;
    for (struct if_nameindex *at = list;
         fd >= 0 && at != NULL && at->if_index != 0 && seen < INTERFACES_MAX; at++, seen++) {
        struct ifreq request = {0};
        (void)snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", at->if_name);
        char name[sizeof(((struct weft_fact *)0)->name)];
        (void)snprintf(name, sizeof(name), "mtu_%.16s_bytes", at->if_name);
        if (ioctl(fd, SIOCGIFMTU, &request) == 0) {
            weft_doctor_add(
                doctor, name, warn_unless(request.ifr_mtu >= ETHERNET_MTU),
                "packets of 1,472 bytes do not fit: set the packet size to MTU - 28 (IPv4) or - 48",
                "%d", request.ifr_mtu);
        }
    }
    if (list != NULL) {
        if_freenameindex(list);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

void weft_doctor_run(uint16_t port, struct weft_doctor *doctor_p)
{
    *doctor_p = (struct weft_doctor){0};
    check_host(doctor_p);
    check_limits(doctor_p);
    check_udp(doctor_p);
    check_ipv6(doctor_p);
    check_time(doctor_p);
    if (port != 0) {
        check_port(doctor_p, port);
    }
    check_interfaces(doctor_p);
}
