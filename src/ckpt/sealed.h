/* A JSON object whose last member is a checksum of all of its bytes, the 16 digits of the checksum
 * taken as zeros: manifests and the other records of a checkpoint directory.
 *
 * Source: docs/CHECKPOINTS.md, "Files".
 */
#ifndef WEFT_CKPT_SEALED_H
#define WEFT_CKPT_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Writes the last member, with zeros for the checksum, and the end of the object. What was printed
 * before ends with a comma and a line end. */
void weft_ckpt_sealed_end(FILE *out);

/* Fill in the checksum of a text that weft_ckpt_sealed_end has ended. */
void weft_ckpt_sealed_fill(char *bytes, size_t count);

/* bytes (count,) are changed meanwhile, and the same again at the end. */
bool weft_ckpt_sealed_good(char *bytes, size_t count);

#endif
