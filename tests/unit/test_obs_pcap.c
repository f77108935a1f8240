/* A capture file byte by byte: headers of the file, Ethernet, IPv4 with its checksum, and UDP. */
#include "obs/pcap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_bytes(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {
        0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1,
        /* 3 s, 5 ns; 45 bytes twice */
        0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 45, 0, 0, 0, 45,
        2, 0, 0, 0, 1, 2, 2, 0, 0, 0, 0, 1, 8, 0,
        0x45, 3, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x25, 0xc9, 10, 0, 0, 1, 10, 0, 1, 2,
        0x1e, 0x14, 0x1e, 0x14, 0, 11, 0, 0, 'a', 'b', 'c',
    };
    char path[] = "/tmp/weft-pcap-XXXXXX";
    uint8_t seen[sizeof(wanted) + 1];
    FILE *file;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(weft_pcap_open(path, &file), WEFT_OK);
    weft_pcap_write(file, 3 * WEFT_NS_PER_S + 5, 1, 0x102, WEFT_ECN_CE, "abc", 3);
    assert_int_equal(fclose(file), 0);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(seen, 1, sizeof(seen), file), sizeof(wanted));
    fclose(file);
    unlink(path);
    assert_memory_equal(seen, wanted, sizeof(wanted));
    assert_int_equal(weft_pcap_open("/no/such/place", &file), WEFT_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests_name("obs_pcap", tests, NULL, NULL);
}
