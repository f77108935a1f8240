#include "base/utf8.h"

unsigned weft_utf8_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    unsigned char lead = at[0];
    unsigned bytes = lead < 0x80   ? 1
                     : lead < 0xc2 ? 0
                     : lead < 0xe0 ? 2
                     : lead < 0xf0 ? 3
                     : lead < 0xf5 ? 4
                                   : 0;
    for (unsigned i = 1; i < bytes; i++) {
        unsigned char low = i == 1 && lead == 0xe0 ? 0xa0 : i == 1 && lead == 0xf0 ? 0x90 : 0x80;
        unsigned char high = i == 1 && lead == 0xed ? 0x9f : i == 1 && lead == 0xf4 ? 0x8f : 0xbf;
        if (at[i] < low || at[i] > high) {
            return 0;
        }
    }
    return bytes;
}

void weft_utf8_repair(char *text)
{
    while (*text != '\0') {
        unsigned bytes = weft_utf8_bytes(text);
        if (bytes == 0) {
            *text = '?';
            bytes = 1;
        }
        text += bytes;
    }
}
