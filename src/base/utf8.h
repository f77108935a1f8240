/* UTF-8 as RFC 3629 defines it. File names and command lines may have any bytes, JSON may not.
 */
#ifndef WEFT_BASE_UTF8_H
#define WEFT_BASE_UTF8_H

/* Bytes of the well-formed character at text, which ends with a 0: 1 to 4; 0 = there is none. */
unsigned weft_utf8_bytes(const char *text);

/* Replace each byte that belongs to no well-formed character by a question mark. */
void weft_utf8_repair(char *text);

#endif
