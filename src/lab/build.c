#include "lab/build.h"

#include "base/units.h"
#include "lab/box.h"
#include "lab/link.h"
#include "lab/offload.h"
#include "lab/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

/* A host's own queue: 1000 packets, Linux's default for an Ethernet interface. */
enum { HOST_QUEUE_BYTES = 1000 * 1514, FRAME_BYTES = 1514 };

/* Burst of a token bucket. If it is too small, late kernel timers reduce the rate; if it is too
 * large, it acts as a second buffer: docs/LAB.md has the measurements. 200 us of the rate, at
 * least two frames. With hysteresis a class sends until its debt is one burst, and then waits
 * until the debt is paid: half the burst lets the same amount pass at once, with a timer per 100
 * us instead of one per frame. */
static uint64_t burst_bytes(uint64_t rate_bps, bool hysteresis)
{
    uint64_t bytes = weft_max_u64(rate_bps / 8 * 200 / 1000000, UINT64_C(2) * FRAME_BYTES);
    return hysteresis ? bytes / 2 : bytes;
}

static const char hysteresis_path[] = "/sys/module/sch_htb/parameters/htb_hysteresis";

/* If HTB is a module, the kernel loads it with the first bucket, and only then its options are
 * known. That bucket is made in a separate network namespace, of a process that exits. */
static void make_first_bucket(void)
{
    static const char *const argv[] = {"tc", "qdisc", "add", "dev", "lo", "root", "htb", NULL};
    pid_t pid = fork();
    if (pid == 0) {
        struct weft_error error;
        _exit(unshare(CLONE_NEWNET) == 0 && weft_lab_tool(argv, "", &error) == WEFT_OK ? 0 : 1);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

bool weft_lab_hysteresis(void)
{
    int value = 0;
    if (access(hysteresis_path, F_OK) != 0) {
        make_first_bucket();
    }
    FILE *file = fopen(hysteresis_path, "re");
    if (file == NULL) {
        return false;
    }
    bool on = fscanf(file, "%d", &value) == 1 && value != 0;
    fclose(file);
    return on;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

weft_status weft_lab_go(const char *node, struct weft_error *error)
{
    char path[64];
    snprintf(path, sizeof(path), WEFT_LAB_PRIVATE "/netns/%s", node);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? WEFT_OK
                : weft_fail(error, WEFT_IO, "cannot go to node %s: %s", node, strerror(why));
}

/* Settings of the current network namespace. A missing one means that the kernel lacks the
 * feature (IPv6), and then nothing is to be set. */
static weft_status set(const char *name, const char *value, struct weft_error *error)
{
    char path[96];
    snprintf(path, sizeof(path), "/proc/sys/net/%s", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 ? write(fd, value, strlen(value)) > 0 : errno == ENOENT;
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? WEFT_OK : weft_fail(error, WEFT_IO, "cannot write %s: %s", path, strerror(why));
}

/* IPv6 would send packets of its own (neighbours, listeners); the others are for routers and
 * harmless on hosts. Policy 1 chooses among equal paths by addresses and ports: a flow keeps its
 * path. */
static weft_status set_all(bool router, struct weft_error *error)
{
    static const struct {
        const char *name;
        const char *value;
        bool router_only;
    } settings[] = {
        {"ipv6/conf/all/disable_ipv6", "1", false},
        {"ipv6/conf/default/disable_ipv6", "1", false},
        {"ipv4/conf/all/rp_filter", "0", false},
        {"ipv4/conf/default/rp_filter", "0", false},
        {"ipv4/conf/all/accept_redirects", "0", false},
        {"ipv4/conf/default/accept_redirects", "0", false},
        {"ipv4/tcp_no_metrics_save", "1", false}, /* otherwise a run starts with metrics cached
                                                   * by the previous one */
        {"ipv4/tcp_ecn_fallback", "0", false},    /* otherwise a lost SYN turns DCTCP into Reno */
        {"ipv4/conf/all/send_redirects", "0", true},
        {"ipv4/conf/default/send_redirects", "0", true},
        {"ipv4/fib_multipath_hash_policy", "1", true},
        {"ipv4/ip_forward", "1", true},
    };
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < WEFT_ARRAY_COUNT(settings) && status == WEFT_OK; i++) {
        if (router || !settings[i].router_only) {
            status = set(settings[i].name, settings[i].value, error);
        }
    }
    return status;
}

/* Create a named network namespace and enter it. */
static weft_status make_node(const char *node, bool router, struct weft_error *error)
{
    char path[64];
    snprintf(path, sizeof(path), WEFT_LAB_PRIVATE "/netns/%s", node);
    int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0400);
    if (fd < 0) {
        return weft_fail(error, WEFT_IO, "cannot make %s: %s", path, strerror(errno));
    }
    close(fd);
    if (unshare(CLONE_NEWNET) != 0 || mount("/proc/self/ns/net", path, NULL, MS_BIND, NULL) != 0) {
        return weft_fail(error, WEFT_IO, "cannot make the network of %s: %s", node,
                         strerror(errno));
    }
    return set_all(router, error);
}

static weft_status make_nodes(const struct weft_lab_spec *spec, struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    weft_status status = WEFT_OK;
    for (uint32_t h = 0; h < spec->hosts && status == WEFT_OK; h++) {
        weft_lab_host_name(h, node);
        status = make_node(node, false, error);
    }
    for (uint32_t r = 0; r < weft_lab_routers(spec) && status == WEFT_OK; r++) {
        weft_lab_router_name(spec, r, node);
        status = make_node(node, true, error);
    }
    return status;
}

/* ---- ports ----------------------------------------------------------------------------------- */

struct port {
    uint32_t next;                  /* port index, counted over all ports of the router; 0 before
                                     * the first */
    char name[WEFT_LAB_NODE_BYTES]; /* the name of the node at the other end */
    uint64_t rate_bps;              /* out of the router; 0 = unlimited */
};

/* The next port of a router: a leaf has ports to its hosts and to all spines, a spine to all
 * leaves. False: there are no more. */
static bool next_port(const struct weft_lab_spec *spec, uint32_t router, struct port *port)
{
    bool leaf = router < spec->leaves;
    uint32_t hosts = leaf ? spec->hosts / spec->leaves : 0;
    uint32_t at = port->next++;
    if (at < hosts) {
        uint32_t host = router * hosts + at;
        weft_lab_host_name(host, port->name);
        port->rate_bps = spec->links[host].down_bps;
        return true;
    }
    at -= hosts;
    weft_lab_router_name(spec, leaf ? spec->leaves + at : at, port->name);
    port->rate_bps = spec->core_bps;
    return at < (leaf ? spec->spines : spec->leaves);
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Growing text for the standard input of a tool. */
struct batch {
    FILE *file;
    char *text;
    size_t bytes;
};

static weft_status batch_open(struct batch *batch, struct weft_error *error)
{
    batch->file = open_memstream(&batch->text, &batch->bytes);
    return batch->file != NULL ? WEFT_OK : weft_fail(error, WEFT_NOMEM, "out of memory");
}

static weft_status batch_run(struct batch *batch, const char *const *argv, struct weft_error *error)
{
    bool good = fclose(batch->file) == 0;
    weft_status status = !good              ? weft_fail(error, WEFT_NOMEM, "out of memory")
                         : batch->bytes > 0 ? weft_lab_tool(argv, batch->text, error)
                                            : WEFT_OK;
    free(batch->text);
    return status;
}

/* Pass the lines of one node, a host or a router by its number, to a tool. */
static weft_status run(const char *const *argv,
                       void (*put)(const struct weft_lab_spec *spec, uint32_t node, FILE *out),
                       const struct weft_lab_spec *spec, uint32_t node, struct weft_error *error)
{
    struct batch batch;
    weft_status status = batch_open(&batch, error);
    if (status == WEFT_OK) {
        put(spec, node, batch.file);
        status = batch_run(&batch, argv, error);
    }
    return status;
}

static const char *const ip_batch[] = {"ip", "-batch", "-", NULL};
static const char *const tc_batch[] = {"tc", "-batch", "-", NULL};
static const char *const nft_batch[] = {"nft", "-f", "-", NULL};

/* A cable preserves packet order only if one processor at a time receives from it. That is the
 * case with NAPI, which a veth uses if GRO is on; and GRO joins no packets if the result may be
 * at most one byte long. Without NAPI a flow whose sender moved between processors was
 * reordered: weft declared 3 % of all packets lost. */
#define ONE_QUEUE "numtxqueues 1 numrxqueues 1"

static const char *gro_limit(const struct weft_lab_spec *spec)
{
    return spec->offload ? "" : "gro_max_size 1";
}

/* ---- cables, addresses, routes --------------------------------------------------------------- */

static void put_host_port(const struct weft_lab_spec *spec, uint32_t host, FILE *out)
{
    char name[WEFT_LAB_NODE_BYTES];
    char address[WEFT_LAB_ADDRESS_BYTES];
    char mac[WEFT_LAB_MAC_BYTES];
    char own_mac[WEFT_LAB_MAC_BYTES];
    weft_lab_host_name(host, name);
    weft_lab_host_address(host, address);
    weft_lab_host_mac(host, mac);
    weft_lab_router_mac(weft_lab_leaf_of(spec, host), own_mac);
    fprintf(out,
            "link add name %s address %s " ONE_QUEUE
            " type veth peer name eth0 address %s " ONE_QUEUE " netns " WEFT_LAB_PRIVATE
            "/netns/%s\n"
            "link set dev %s up %s\n"
            "route add %s/32 dev %s\n"
            "neighbour add %s lladdr %s dev %s nud permanent\n",
            name, own_mac, mac, name, name, gro_limit(spec), address, name, address, mac, name);
}

/* A router's own address: the source of its replies (ttl exceeded), and the next hop of others. */
static void put_router_address(uint32_t router, FILE *out)
{
    char address[WEFT_LAB_ADDRESS_BYTES];
    weft_lab_router_address(router, address);
    fprintf(out, "link set dev lo up\naddress add %s/32 dev lo\n", address);
}

static void put_router_neighbour(const struct weft_lab_spec *spec, uint32_t router,
                                 const char *port, FILE *out)
{
    char address[WEFT_LAB_ADDRESS_BYTES];
    char mac[WEFT_LAB_MAC_BYTES];
    weft_lab_router_address(router, address);
    weft_lab_router_mac(router, mac);
    fprintf(out,
            "link set dev %s up %s\n"
            "neighbour add %s lladdr %s dev %s nud permanent\n",
            port, gro_limit(spec), address, mac, port);
}

/* The cables to every spine, and one route over all of them for hosts of other leaves. */
static void put_uplinks(const struct weft_lab_spec *spec, uint32_t leaf, FILE *out)
{
    char own_name[WEFT_LAB_NODE_BYTES];
    char own_mac[WEFT_LAB_MAC_BYTES];
    char spine[WEFT_LAB_NODE_BYTES];
    char mac[WEFT_LAB_MAC_BYTES];
    weft_lab_router_name(spec, leaf, own_name);
    weft_lab_router_mac(leaf, own_mac);
    for (uint32_t r = spec->leaves; r < weft_lab_routers(spec); r++) {
        weft_lab_router_name(spec, r, spine);
        weft_lab_router_mac(r, mac);
        fprintf(out,
                "link add name %s address %s " ONE_QUEUE
                " type veth peer name %s address %s " ONE_QUEUE " netns " WEFT_LAB_PRIVATE
                "/netns/%s\n",
                spine, own_mac, own_name, mac, spine);
        put_router_neighbour(spec, r, spine, out);
    }
    if (spec->spines == 0) {
        return;
    }
    fputs("route add default", out);
    for (uint32_t r = spec->leaves; r < weft_lab_routers(spec); r++) {
        char address[WEFT_LAB_ADDRESS_BYTES];
        weft_lab_router_name(spec, r, spine);
        weft_lab_router_address(r, address);
        fprintf(out, " nexthop via %s dev %s onlink", address, spine);
    }
    fputc('\n', out);
}

static void put_leaf(const struct weft_lab_spec *spec, uint32_t leaf, FILE *out)
{
    put_router_address(leaf, out);
    for (uint32_t h = 0; h < spec->hosts; h++) {
        if (weft_lab_leaf_of(spec, h) == leaf) {
            put_host_port(spec, h, out);
        }
    }
    put_uplinks(spec, leaf, out);
}

static void put_spine(const struct weft_lab_spec *spec, uint32_t router, FILE *out)
{
    char port[WEFT_LAB_NODE_BYTES];
    char address[WEFT_LAB_ADDRESS_BYTES];
    put_router_address(router, out);
    for (uint32_t leaf = 0; leaf < spec->leaves; leaf++) {
        weft_lab_router_name(spec, leaf, port);
        put_router_neighbour(spec, leaf, port, out);
    }
    for (uint32_t h = 0; h < spec->hosts; h++) {
        char via[WEFT_LAB_ADDRESS_BYTES];
        uint32_t leaf = weft_lab_leaf_of(spec, h);
        weft_lab_host_address(h, address);
        weft_lab_router_name(spec, leaf, port);
        weft_lab_router_address(leaf, via);
        fprintf(out, "route add %s/32 via %s dev %s onlink\n", address, via, port);
    }
}

/* The address has the prefix length of the whole lab, for programs that compare networks; the
 * path is through the leaf in any case. */
static void put_host(const struct weft_lab_spec *spec, uint32_t host, FILE *out)
{
    char address[WEFT_LAB_ADDRESS_BYTES];
    char via[WEFT_LAB_ADDRESS_BYTES];
    uint32_t leaf = weft_lab_leaf_of(spec, host);
    weft_lab_host_address(host, address);
    weft_lab_router_address(leaf, via);
    fprintf(out, "link set dev lo up\naddress add %s/16 dev eth0 noprefixroute\n", address);
    put_router_neighbour(spec, leaf, "eth0", out);
    fprintf(out, "route add 10.77.0.0/16 via %s dev eth0 onlink src %s\n", via, address);
}

/* ---- queues and losses ----------------------------------------------------------------------- */

static void put_class(const struct weft_lab_spec *spec, const char *verb, const char *port,
                      uint64_t rate_bps, FILE *out)
{
    unsigned long long burst = burst_bytes(rate_bps, spec->hysteresis);
    fprintf(out,
            "class %s dev %s parent 1: classid 1:1 htb rate %llubit burst %llub cburst %llub "
            "quantum %d\n",
            verb, port, (unsigned long long)rate_bps, burst, burst, FRAME_BYTES);
}

/* HTB with one class, not TBF: TBF sets its timer far more often, which is expensive on virtual
 * machines (docs/LAB.md). The queue belongs to the class. */
static void put_bucket(const struct weft_lab_spec *spec, const char *port, uint64_t rate_bps,
                       uint64_t limit_bytes, FILE *out)
{
    if (rate_bps > 0) {
        fprintf(out, "qdisc add dev %s root handle 1: htb default 1\n", port);
        put_class(spec, "add", port, rate_bps, out);
        fprintf(out, "qdisc add dev %s parent 1:1 handle 10: bfifo limit %llub\n", port,
                (unsigned long long)limit_bytes);
    }
}

static void put_host_queue(const struct weft_lab_spec *spec, uint32_t host, FILE *out)
{
    put_bucket(spec, "eth0", spec->links[host].up_bps, HOST_QUEUE_BYTES, out);
}

static void put_router_queues(const struct weft_lab_spec *spec, uint32_t router, FILE *out)
{
    struct port port = {.next = 0};
    while (next_port(spec, router, &port)) {
        put_bucket(spec, port.name, port.rate_bps, spec->buffer_bytes, out);
    }
}

static weft_status add_loss(uint32_t loss_ppm, struct weft_error *error)
{
    if (loss_ppm == 0) {
        return WEFT_OK;
    }
    char rules[256];
    snprintf(rules, sizeof(rules),
             "table netdev weft {\n"
             "  chain arrival {\n"
             "    type filter hook ingress device eth0 priority 0; policy accept;\n"
             "    numgen random mod 1000000 < %u counter drop\n"
             "  }\n"
             "}\n",
             loss_ppm);
    return weft_lab_tool(nft_batch, rules, error);
}

/* Ports without a rate have practically no queue. */
static weft_status mark_ports(const struct weft_lab_spec *spec, uint32_t router,
                              struct weft_error *error)
{
    struct port port = {.next = 0};
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_port(spec, router, &port)) {
        if (port.rate_bps > 0) {
            status = weft_link_mark(port.name, spec->ecn_bytes, error);
        }
    }
    return status;
}

/* ---- node by node ---------------------------------------------------------------------------- */

static weft_status offload_ports(const struct weft_lab_spec *spec, uint32_t router,
                                 struct weft_error *error)
{
    struct port port = {.next = 0};
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && next_port(spec, router, &port)) {
        status = weft_lab_offload_set(port.name, spec->offload, error);
    }
    return status;
}

static weft_status build_router(const struct weft_lab_spec *spec, uint32_t router,
                                struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    weft_lab_router_name(spec, router, node);
    weft_status status = weft_lab_go(node, error);
    if (status == WEFT_OK) {
        status = run(ip_batch, router < spec->leaves ? put_leaf : put_spine, spec, router, error);
    }
    if (status == WEFT_OK) {
        status = offload_ports(spec, router, error);
    }
    if (status == WEFT_OK) {
        status = run(tc_batch, put_router_queues, spec, router, error);
    }
    if (status == WEFT_OK && spec->ecn_bytes > 0) {
        status = mark_ports(spec, router, error);
    }
    return status == WEFT_OK && spec->has_boxes && router < spec->leaves
               ? weft_lab_box_build(spec, router, error)
               : status;
}

static weft_status build_host(const struct weft_lab_spec *spec, uint32_t host,
                              struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    weft_lab_host_name(host, node);
    weft_status status = weft_lab_go(node, error);
    if (status == WEFT_OK) {
        status = weft_lab_offload_set("eth0", spec->offload, error);
    }
    if (status == WEFT_OK) {
        status = run(ip_batch, put_host, spec, host, error);
    }
    if (status == WEFT_OK) {
        status = run(tc_batch, put_host_queue, spec, host, error);
    }
    if (status == WEFT_OK && spec->burst_ppm > 0) {
        status = weft_link_lose("eth0", spec->burst_ppm, spec->burst_packets, error);
    }
    return status == WEFT_OK ? add_loss(spec->loss_ppm, error) : status;
}

weft_status weft_lab_build(const struct weft_lab_spec *spec, struct weft_error *error)
{
    weft_status status = make_nodes(spec, error);
    for (uint32_t r = 0; r < weft_lab_routers(spec) && status == WEFT_OK; r++) {
        status = build_router(spec, r, error);
    }
    for (uint32_t h = 0; h < spec->hosts && status == WEFT_OK; h++) {
        status = build_host(spec, h, error);
    }
    return status;
}

static weft_status change(const struct weft_lab_spec *spec, const char *node, const char *port,
                          uint64_t rate_bps, struct weft_error *error)
{
    struct batch batch;
    weft_status status = weft_lab_go(node, error);
    if (status == WEFT_OK && (status = batch_open(&batch, error)) == WEFT_OK) {
        put_class(spec, "change", port, rate_bps, batch.file);
        status = batch_run(&batch, tc_batch, error);
    }
    return status;
}

weft_status weft_lab_reshape(const struct weft_lab_spec *spec, uint32_t host,
                             const struct weft_lab_link *link, struct weft_error *error)
{
    char node[WEFT_LAB_NODE_BYTES];
    char leaf[WEFT_LAB_NODE_BYTES];
    weft_lab_host_name(host, node);
    weft_lab_router_name(spec, weft_lab_leaf_of(spec, host), leaf);
    weft_status status = change(spec, node, "eth0", link->up_bps, error);
    return status == WEFT_OK ? change(spec, leaf, node, link->down_bps, error) : status;
}
