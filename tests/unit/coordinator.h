/* A coordinator on a real socket, turned by a thread of the test; what `weft scheduler` is, less the
 * command line, the journal and security. */
#ifndef TESTS_UNIT_COORDINATOR_H
#define TESTS_UNIT_COORDINATOR_H

#include "base/assert.h"
#include "io/clock.h"
#include "io/driver.h"
#include "member/service.h"

#include <pthread.h>
#include <stdatomic.h>

struct coordinator {
    struct weft_driver *driver;
    struct weft_roster *roster;
    struct weft_member_service *service;
    pthread_t thread;
    atomic_bool stop;
};

static inline void coordinator_handle(void *arg, uint64_t now_ns)
{
    struct coordinator *c = arg;
    struct weft_msgr msgr = weft_driver_msgr(c->driver);
    struct weft_msg_event event;
    while (msgr.ops->poll(msgr.self, &event)) {
        weft_member_service_event(c->service, &event, now_ns);
    }
    weft_member_service_progress(c->service, now_ns);
}

static inline void *coordinator_turn(void *arg)
{
    struct coordinator *c = arg;
    while (!atomic_load(&c->stop)) {
        (void)weft_driver_step(c->driver, 20 * WEFT_NS_PER_MS, coordinator_handle, c);
    }
    return NULL;
}

/* Of two workers. Returns its port. */
static inline uint16_t coordinator_start(struct coordinator *c, uint16_t port, uint32_t shards,
                                         uint64_t lease_ns)
{
    struct weft_io_error error = {.text = ""};
    struct weft_driver_config driver;
    struct weft_roster_config roster;
    *c = (struct coordinator){.driver = NULL};
    weft_driver_config_default(&driver);
    driver.udp.port = port;
    driver.udp.ep.accept = 1;
    driver.udp.ep.peers_max = 16;
    driver.udp.ep.name = weft_rpc_name(WEFT_ROLE_COORDINATOR, 0);
    WEFT_ASSERT(weft_driver_open(&driver, &c->driver, &error) == WEFT_OK);
    weft_roster_config_default(&roster);
    roster.workers = 2;
    roster.shards = shards;
    roster.lease_ns = lease_ns;
    roster.tell_over = true;
    WEFT_ASSERT(weft_roster_new(&roster, &c->roster) == WEFT_OK);
    const struct weft_member_service_config service = {
        .peers_max = 16, .slots = 16, .shards_max = 32, .roster = c->roster};
    weft_status status =
        weft_member_service_new(&service, weft_driver_msgr(c->driver), &c->service);
    WEFT_ASSERT(status == WEFT_OK);
    WEFT_ASSERT(pthread_create(&c->thread, NULL, coordinator_turn, c) == 0);
    return weft_driver_port(c->driver);
}

static inline void coordinator_stop(struct coordinator *c)
{
    atomic_store(&c->stop, true);
    pthread_join(c->thread, NULL);
    weft_driver_close(c->driver);
    weft_member_service_free(c->service);
    weft_roster_free(c->roster);
}

#endif
