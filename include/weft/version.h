/* The release of the library that a program is linked with at run time. The headers contain no
 * release number.
 *
 * docs/API.md has the compatibility rules. The Python package checks this version: it works only
 * with the library of its own release.
 */
#ifndef WEFT_VERSION_H
#define WEFT_VERSION_H

#include <weft/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.2.0": MAJOR.MINOR.PATCH of the release; never NULL. */
WEFT_API const char *weft_version(void);

#ifdef __cplusplus
}
#endif

#endif
