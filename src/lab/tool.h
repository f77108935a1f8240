/* Runs a program of the system (ip, tc, nft) with text on its standard input and keeps its words.
 *
 * The kernel's own tools in batch mode, not netlink by hand: what they print is what the manuals and
 * the web explain, and a reader can repeat a step in a shell. One call does a node's whole batch, so
 * a lab of 9 hosts takes some 40 processes.
 */
#ifndef WEFT_LAB_TOOL_H
#define WEFT_LAB_TOOL_H

#include "base/error.h"

/* Run argv[0] (looked for in PATH, then in /usr/sbin and /sbin) and wait for its end.
 *
 * Owns:    borrows input, the whole of its standard input, until return.
 * Errors:  WEFT_UNSUPPORTED  there is no such program; the text names the package that has it.
 *          WEFT_IO           it ended with a failure; the text quotes its words and, where it said
 *                            which, the line of the input that it refused. */
[[nodiscard]] weft_status weft_lab_tool(const char *const *argv, const char *input,
                                        struct weft_error *error);

#endif
