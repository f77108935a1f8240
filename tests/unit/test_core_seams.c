/* Where the parts of the endpoint meet: handshake and timers, sessions that replace many others,
 * announcements of idleness, closing before there are keys. */
#include "core_net.h"

/* ---- the first packet after ACCEPT ----------------------------------------------------------- */

static bool lose_first_packets(struct net *net, struct net_datagram *d)
{
    uint32_t *left = net->tap_arg;
    bool packet = (d->data[0] & 15) < WEFT_CLASS_HELLO;
    if (packet && *left > 0 && memcmp(&d->from, &net->end[0].addr, sizeof(d->from)) == 0) {
        --*left;
        return false;
    }
    return true;
}

/* The PING that tells the other end that ACCEPT came is lost, and nothing else is to be said: it
 * must come again, or the other end forgets the connection that this one believes to have. */
static void check_up_in_spite_of_loss(uint8_t mode)
{
    struct net *net = net_new(mode, mode);
    uint32_t left = 3;
    net->tap = lose_first_packets;
    net->tap_arg = &left;
    net_connect(net, 0, 1);
    net_run(net, WEFT_NS_PER_S);
    assert_int_equal(left, 0);
    assert_int_equal(net->end[0].ups, 1);
    assert_int_equal(net->end[1].ups, 1);
    net_run(net, 20 * WEFT_NS_PER_S);
    assert_int_equal(net->end[0].downs + net->end[1].downs, 0);
    assert_int_equal(net->end[1].ep->peers[net->end[1].peer].state, PEER_OPEN);
    assert_false(weft_ep_busy(net->end[0].ep));
    net_free(net);
}

static void test_the_first_ping_is_lost(void **state)
{
    (void)state;
    check_up_in_spite_of_loss(WEFT_MODE_NONE);
    check_up_in_spite_of_loss(WEFT_MODE_SEAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_ping_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
