#include "ckpt/sealed.h"

#include <inttypes.h>
#include <stdint.h>
#include <string.h>
#include <xxhash.h>

/* The end of the text, and the offset of the checksum within it. */
#define HASH_BEFORE "  \"xxh3_64\": \""
#define HASH_AFTER  "\"\n}\n"
enum { HASH_DIGITS = 16, HASH_FROM_END = HASH_DIGITS + sizeof(HASH_AFTER) - 1 };

void weft_ckpt_sealed_end(FILE *out)
{
    fprintf(out, "%s%016d%s", HASH_BEFORE, 0, HASH_AFTER);
}

/* Hash with zeros for the digits. In place and in one call: no allocation can fail here, which
 * would look like damage. */
static uint64_t hash_of(char *bytes, size_t count)
{
    char kept[HASH_DIGITS];
    char *digits = bytes + count - HASH_FROM_END;
    memcpy(kept, digits, sizeof(kept));
    memset(digits, '0', sizeof(kept));
    uint64_t hash = XXH3_64bits(bytes, count);
    memcpy(digits, kept, sizeof(kept));
    return hash;
}

void weft_ckpt_sealed_fill(char *bytes, size_t count)
{
    char digits[HASH_DIGITS + 1];
    snprintf(digits, sizeof(digits), "%016" PRIx64, hash_of(bytes, count));
    memcpy(bytes + count - HASH_FROM_END, digits, HASH_DIGITS);
}

bool weft_ckpt_sealed_good(char *bytes, size_t count)
{
    static const size_t least = sizeof(HASH_BEFORE) - 1 + HASH_FROM_END;
    char digits[HASH_DIGITS + 1];
    if (count < least || memcmp(bytes + count - least, HASH_BEFORE, sizeof(HASH_BEFORE) - 1) != 0 ||
        memcmp(bytes + count - (sizeof(HASH_AFTER) - 1), HASH_AFTER, sizeof(HASH_AFTER) - 1) != 0) {
        return false;
    }
    snprintf(digits, sizeof(digits), "%016" PRIx64, hash_of(bytes, count));
    return memcmp(bytes + count - HASH_FROM_END, digits, HASH_DIGITS) == 0;
}
