/* Runs a system program (ip, tc, nft) with text on its standard input and keeps its output.
 *
 * The kernel's own tools are used in batch mode, not netlink directly: their output is documented
 * in manuals and on the web, and a step can be repeated in a shell. One call runs the whole batch
 * of a node, so a lab of 9 hosts needs some 40 processes.
 */
#ifndef WEFT_LAB_TOOL_H
#define WEFT_LAB_TOOL_H

#include "base/error.h"

/* Run argv[0] (searched in PATH, then in /usr/sbin and /sbin) and wait for its exit.
 *
 * Owns:    borrows input, the whole of its standard input, until return.
 * Errors:  WEFT_UNSUPPORTED  there is no such program; the text names the package that has it.
 *          WEFT_IO           it failed; the text quotes its output and, if known, the line of the
 *                            input at which it failed. */
[[nodiscard]] weft_status weft_lab_tool(const char *const *argv, const char *input,
                                        struct weft_error *error);

#endif
