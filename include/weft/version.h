/* Which release of the library runs; which one a program was compiled with is not in the headers.
 *
 * What stays compatible between releases is in docs/API.md. The Python package asks here: it works
 * with the library of its own release alone.
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
