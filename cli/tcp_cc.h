/* A congestion control for kernel TCP by the name a person gives: "dctcp" works on every kernel that can
 * be taught it (lab/dctcp.h); all other names are the kernel's own.
 */
#ifndef WEFT_CLI_TCP_CC_H
#define WEFT_CLI_TCP_CC_H

/* The name for the kernel, in *name_p: what it was, unless it was "dctcp" and the kernel has none. Ours
 * is then registered until this process and the children it forks afterwards have ended. NULL stays NULL.
 * Call it before the processes are made that use the name, once.
 *
 * Returns WEFT_OPTIONS_RUN, or WEFT_EXIT_FAILED when ours cannot be had; it has said why ("weft VERB:
 * --tcp-cc dctcp: ..."), with the option as the verb calls it. */
int weft_cli_tcp_cc(const char *verb, const char *option, const char **name_p);

/* The name for a person: "dctcp" for ours, "default" for NULL. */
const char *weft_cli_tcp_cc_name(const char *name);

#endif
