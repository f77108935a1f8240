/* Exclusion between the endpoint's owner and the thread that sends delayed acknowledgements for it.
 * The shared state is plain memory, so that the thread sanitizer reports every concurrent access.
 */
#include "io/udp/delayed_ack.h"

#include "base/status.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Takes the place of the endpoint. */
static struct {
    bool owned;
    uint64_t sent;
    uint32_t calls;
} shared;

static void send_counted(void *arg)
{
    (void)arg;
    assert_false(shared.owned);
    shared.sent++;
}

/* ---- an interface that counts ---------------------------------------------------------------- */

static uint32_t count_elems(void *self, weft_peer peer, uint16_t elem_bytes)
{
    (void)self;
    return ++shared.calls + peer + elem_bytes;
}

static weft_status count_pace(void *self, weft_peer peer, uint64_t seq,
                              const struct weft_msg_pace *pace, uint64_t now_ns)
{
    (void)self, (void)peer, (void)pace, (void)now_ns;
    shared.calls++;
    return seq == 3 ? WEFT_OK : WEFT_NOTFOUND;
}

static weft_status count_withdraw(void *self, weft_peer peer, uint64_t seq, uint64_t now_ns)
{
    (void)self, (void)peer, (void)now_ns;
    shared.calls++;
    return seq == 3 ? WEFT_STATE : WEFT_NOTFOUND;
}

static weft_status count_send(void *self, const struct weft_msg_send *send, uint64_t now_ns,
                              uint64_t *seq_p)
{
    (void)self, (void)send;
    shared.calls++;
    *seq_p = now_ns;
    return WEFT_AGAIN;
}

static weft_status count_expect(void *self, const struct weft_msg_expect *expect,
                                weft_expect_id *id_p)
{
    (void)self, (void)expect;
    shared.calls++;
    *id_p = 9;
    return WEFT_OK;
}

static weft_status count_cancel(void *self, weft_expect_id id)
{
    (void)self, (void)id;
    shared.calls++;
    return WEFT_NOTFOUND;
}

static void count_set_user(void *self, weft_peer peer, uint64_t seq, uint64_t user)
{
    (void)self, (void)peer, (void)seq, (void)user;
    shared.calls++;
}

static void count_refuse(void *self, weft_peer peer, uint64_t seq)
{
    (void)self, (void)peer, (void)seq;
    shared.calls++;
}

static bool count_poll(void *self, struct weft_msg_event *event_p)
{
    (void)self;
    shared.calls++;
    event_p->seq = 4;
    return true;
}

static const struct weft_msg_ops counting = {
    .chunk_elems = count_elems,
    .send = count_send,
    .pace = count_pace,
    .withdraw = count_withdraw,
    .expect = count_expect,
    .cancel = count_cancel,
    .set_user = count_set_user,
    .refuse = count_refuse,
    .poll = count_poll,
};

/* ---- owner and thread ------------------------------------------------------------------------ */

static struct weft_delayed_ack *make(uint64_t gap_ns)
{
    const struct weft_delayed_ack_config config = {
        .gap_ns = gap_ns, .inner = {.ops = &counting}, .send = send_counted};
    struct weft_delayed_ack *ack;
    assert_int_equal(weft_delayed_ack_new(&config, &ack), WEFT_OK);
    shared.owned = true;
    shared.sent = 0;
    shared.calls = 0;
    return ack;
}

static void lend(struct weft_delayed_ack *ack)
{
    assert_true(weft_delayed_ack_pays(ack));
    shared.owned = false;
    weft_delayed_ack_leave(ack, true, 1);
}

static void take(struct weft_delayed_ack *ack)
{
    assert_true(weft_delayed_ack_enter(ack));
    shared.owned = true;
}

static void pause_us(long us)
{
    const struct timespec t = {.tv_nsec = us * 1000};
    (void)nanosleep(&t, NULL);
}

static void wait_for_sent(struct weft_delayed_ack *ack, uint64_t sent)
{
    while (weft_delayed_ack_sent(ack) < sent) {
        pause_us(200); /* the test's own limit ends it */
    }
}

static void the_thread_sends_while_the_owner_is_away(void **state)
{
    (void)state;
    struct weft_delayed_ack *ack = make(WEFT_NEVER);
    for (uint64_t round = 1; round <= 5; round++) {
        lend(ack);
        wait_for_sent(ack, round);
        take(ack);
        assert_int_equal(shared.sent, round);
        pause_us(round % 2 * 8000); /* sometimes long enough for the thread to sleep */
    }
    weft_delayed_ack_free(ack);
}

static void only_one_has_the_endpoint(void **state)
{
    (void)state;
    enum { ROUNDS = 3000 };
    struct weft_delayed_ack *ack = make(WEFT_NEVER);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        lend(ack);
        pause_us(i % 500 == 0 ? 4000 : 0);
        take(ack);
    }
    assert_true(shared.sent <= ROUNDS);
    assert_int_equal(shared.sent, weft_delayed_ack_sent(ack));
    weft_delayed_ack_free(ack);
}

static void what_is_delayed_at_the_end_is_not_sent(void **state)
{
    (void)state;
    struct weft_delayed_ack *ack = make(WEFT_NEVER);
    weft_delayed_ack_free(ack);
    ack = make(WEFT_NEVER);
    lend(ack);
    weft_delayed_ack_free(ack);
    assert_true(shared.sent <= 1); /* unless the thread was first */
    weft_delayed_ack_free(NULL);
    assert_false(weft_delayed_ack_enter(NULL));
    assert_int_equal(weft_delayed_ack_sent(NULL), 0);
}

/* A forked process has no such thread: it must wait neither for the thread nor for the condition on
 * which the thread slept. */
static void a_forked_process_does_not_wait_for_the_thread(void **state)
{
    (void)state;
    for (int asleep = 0; asleep <= 1; asleep++) {
        struct weft_delayed_ack *ack = make(WEFT_NEVER);
        lend(ack);
        if (asleep) {
            wait_for_sent(ack, 1);
        }
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            alarm(60);
            weft_delayed_ack_free(ack);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        weft_delayed_ack_free(ack);
    }
}

static void a_delay_pays_after_a_short_absence(void **state)
{
    (void)state;
    struct weft_delayed_ack *ack = make(100);
    assert_false(weft_delayed_ack_pays(ack));
    weft_delayed_ack_return(ack, 50); /* without leave */
    assert_false(weft_delayed_ack_pays(ack));
    weft_delayed_ack_leave(ack, false, 1000);
    weft_delayed_ack_return(ack, 1100);
    assert_true(weft_delayed_ack_pays(ack));
    weft_delayed_ack_return(ack, 5000); /* a second return without leave changes nothing */
    assert_true(weft_delayed_ack_pays(ack));
    weft_delayed_ack_leave(ack, true, 6000);
    weft_delayed_ack_return(ack, 6101);
    assert_false(weft_delayed_ack_pays(ack));
    weft_delayed_ack_free(ack);
}

/* The owner uses the endpoint for a moment, and the thread still sends afterwards. */
static void entering_does_not_stop_the_thread(void **state)
{
    (void)state;
    struct weft_delayed_ack *ack = make(WEFT_NEVER);
    lend(ack);
    bool was_lent = weft_delayed_ack_enter(ack);
    assert_true(was_lent);
    assert_false(weft_delayed_ack_enter(ack));
    uint64_t sent = weft_delayed_ack_sent(ack);
    weft_delayed_ack_exit(ack, was_lent);
    wait_for_sent(ack, sent + 1);
    take(ack);
    sent = weft_delayed_ack_sent(ack);
    weft_delayed_ack_exit(ack, false); /* it was not lent and stays so */
    assert_false(weft_delayed_ack_enter(ack));
    weft_delayed_ack_free(ack);
    assert_int_equal(shared.sent, sent);
}

static void every_call_enters_and_exits(void **state)
{
    (void)state;
    struct weft_delayed_ack *ack = make(WEFT_NEVER);
    struct weft_msgr msgr = weft_delayed_ack_msgr(ack);
    struct weft_msg_send send = {0};
    struct weft_msg_expect expect = {0};
    struct weft_msg_event event;
    uint64_t seq;
    weft_expect_id id;
    for (uint32_t call = 0; call < 9; call++) {
        lend(ack);
        switch (call) {
        case 0:
            assert_int_equal(msgr.ops->chunk_elems(msgr.self, 10, 20), 31);
            break;
        case 1:
            assert_int_equal(msgr.ops->send(msgr.self, &send, 7, &seq), WEFT_AGAIN);
            assert_int_equal(seq, 7);
            break;
        case 2:
            assert_int_equal(msgr.ops->expect(msgr.self, &expect, &id), WEFT_OK);
            assert_int_equal(id, 9);
            break;
        case 3:
            assert_int_equal(msgr.ops->cancel(msgr.self, 9), WEFT_NOTFOUND);
            break;
        case 4:
            msgr.ops->set_user(msgr.self, 1, 2, 3);
            break;
        case 5:
            msgr.ops->refuse(msgr.self, 1, 2);
            break;
        case 6:
            assert_int_equal(
                msgr.ops->pace(msgr.self, 1, 3, &(struct weft_msg_pace){.rank = 1}, 7), WEFT_OK);
            break;
        case 7:
            assert_int_equal(msgr.ops->withdraw(msgr.self, 1, 3, 7), WEFT_STATE);
            break;
        default:
            assert_true(msgr.ops->poll(msgr.self, &event));
            assert_int_equal(event.seq, 4);
        }
        take(ack); /* it was lent again */
        assert_int_equal(shared.calls, call + 1);
    }
    weft_delayed_ack_free(ack);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_thread_sends_while_the_owner_is_away),
        cmocka_unit_test(only_one_has_the_endpoint),
        cmocka_unit_test(what_is_delayed_at_the_end_is_not_sent),
        cmocka_unit_test(a_forked_process_does_not_wait_for_the_thread),
        cmocka_unit_test(a_delay_pays_after_a_short_absence),
        cmocka_unit_test(entering_does_not_stop_the_thread),
        cmocka_unit_test(every_call_enters_and_exits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
