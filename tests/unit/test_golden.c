/* The bytes of packets, checkpoints, journals and traces are those of tests/golden. */
#include "golden.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_wire),       cmocka_unit_test(golden_handshake),
        cmocka_unit_test(golden_rpc),        cmocka_unit_test(golden_messages),
        cmocka_unit_test(golden_checkpoint), cmocka_unit_test(golden_journal),
        cmocka_unit_test(golden_members),    cmocka_unit_test(golden_trace),
        cmocka_unit_test(golden_records),    cmocka_unit_test(golden_pcap),
        cmocka_unit_test(golden_agg),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
