/* The ethtool ioctl with features by name: the old single-bit calls (ETHTOOL_STSO) do not support
 * UDP segmentation, which weft itself uses, and the program `ethtool` would need one process per
 * cable end.
 * Source: the kernel's include/uapi/linux/ethtool.h, "struct ethtool_sfeatures".
 */
#include "lab/offload.h"

#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FEATURES_MAX = 128 };

static bool ethtool(int fd, const char *interface, void *command)
{
    struct ifreq request = {0};
    strncpy(request.ifr_name, interface, sizeof(request.ifr_name) - 1);
    request.ifr_data = command;
    return ioctl(fd, SIOCETHTOOL, &request) >= 0;
}

static bool joins_packets(const char *feature)
{
    return strstr(feature, "segmentation") != NULL || strstr(feature, "gso") != NULL ||
           strstr(feature, "gro") != NULL || strstr(feature, "lro") != NULL;
}

/* The kernel's structs end in flexible arrays; these have fixed space for them. */
struct names {
    uint32_t cmd;
    uint32_t string_set;
    uint32_t count;
    char text[FEATURES_MAX][ETH_GSTRING_LEN];
};

static bool read_names(int fd, const char *interface, struct names *names)
{
    struct {
        uint32_t cmd;
        uint32_t reserved;
        uint64_t mask;
        uint32_t count;
    } sets = {.cmd = ETHTOOL_GSSET_INFO, .mask = 1ULL << ETH_SS_FEATURES};
    if (!ethtool(fd, interface, &sets) || sets.count > FEATURES_MAX) {
        return false;
    }
    *names = (struct names){
        .cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_FEATURES, .count = sets.count};
    return ethtool(fd, interface, names);
}

static bool set_features(int fd, const char *interface, bool keep_offloads)
{
    static struct names names;
    if (!read_names(fd, interface, &names)) {
        return false;
    }
    struct {
        uint32_t cmd;
        uint32_t blocks_count;
        struct ethtool_set_features_block blocks[FEATURES_MAX / 32];
    } set = {.cmd = ETHTOOL_SFEATURES, .blocks_count = (names.count + 31) / 32};
    struct {
        uint32_t cmd;
        uint32_t blocks_count;
        struct ethtool_get_features_block blocks[FEATURES_MAX / 32];
    } now = {.cmd = ETHTOOL_GFEATURES, .blocks_count = set.blocks_count};
    if (!ethtool(fd, interface, &now)) {
        return false;
    }
    for (uint32_t i = 0; i < names.count; i++) {
        uint32_t bit = 1U << (i % 32);
        bool gro = strcmp(names.text[i], "rx-gro") == 0;
        if ((keep_offloads ? gro : joins_packets(names.text[i])) &&
            (now.blocks[i / 32].available & bit) != 0 &&
            (now.blocks[i / 32].never_changed & bit) == 0) {
            set.blocks[i / 32].valid |= bit;
            if (gro) {
                set.blocks[i / 32].requested |= bit; /* GRO enables NAPI: build.c, gro_limit */
            }
        }
    }
    return ethtool(fd, interface, &set);
}

weft_status weft_lab_offload_set(const char *interface, bool keep_offloads,
                                 struct weft_error *error)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && set_features(fd, interface, keep_offloads);
    int why = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? WEFT_OK
                : weft_fail(error, WEFT_IO, "cannot set segmentation and GRO of %s: %s", interface,
                            strerror(why));
}
