/* A JSON object whose last member is a checksum of all bytes of the object, computed with zeros in
 * place of the checksum's 16 digits: manifests and the other records of a checkpoint directory.
 *
 * Source: docs/CHECKPOINTS.md, "Files".
 */
#ifndef WEFT_CKPT_SEALED_H
#define WEFT_CKPT_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Write the last member, with zeros for the checksum, and the end of the object. The text
 * printed before must end with a comma and a newline. */
void weft_ckpt_sealed_end(FILE *out);

/* Fill in the checksum of a text that weft_ckpt_sealed_end has finished. */
void weft_ckpt_sealed_fill(char *bytes, size_t count);

/* bytes (count,) are modified during the call and restored at its end. */
bool weft_ckpt_sealed_good(char *bytes, size_t count);

#endif
