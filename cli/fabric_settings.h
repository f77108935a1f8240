/* Settings of compute times and networks, by name or from a file: for `weft sim fabric`, `weft
 * train` and `weft worker`. */
#ifndef WEFT_CLI_FABRIC_SETTINGS_H
#define WEFT_CLI_FABRIC_SETTINGS_H

#include "sim/fabric_settings.h"

enum { WEFT_CLI_FABRIC_ERROR_BYTES = 512 };

/* Load a built-in setting, or else a file. False: error_p has the reason. */
bool weft_cli_fabric_compute(const char *name_or_file, struct weft_fabric_compute *compute_p,
                             char error_p[WEFT_CLI_FABRIC_ERROR_BYTES]);
bool weft_cli_fabric_network(const char *name_or_file, struct weft_fabric_network *network_p,
                             char error_p[WEFT_CLI_FABRIC_ERROR_BYTES]);

#endif
