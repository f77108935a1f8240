/* Congestion control for kernel TCP, by its user-visible name. "dctcp" works on every kernel that
 * supports BPF struct_ops for it (lab/dctcp.h); other names are the kernel's. */
#ifndef WEFT_CLI_TCP_CC_H
#define WEFT_CLI_TCP_CC_H

/* Replace *name_p by the kernel's name. It is unchanged, unless it is "dctcp" and the kernel has no
 * dctcp; weft's own is then registered until this process and the children that it forks afterwards
 * have ended. NULL stays NULL. Call it once, before starting processes that use the name.
 *
 * Returns WEFT_OPTIONS_RUN. Returns WEFT_EXIT_FAILED if weft's dctcp cannot be loaded, after
 * printing an error with the verb's option name ("weft VERB: --tcp-cc dctcp: ..."). */
int weft_cli_tcp_cc(const char *verb, const char *option, const char **name_p);

/* The user-visible name: "dctcp" for weft's own, "default" for NULL. */
const char *weft_cli_tcp_cc_name(const char *name);

#endif
