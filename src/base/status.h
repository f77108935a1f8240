/* Status codes. The list itself is public: <weft/status.h>.
 *
 * Four kinds of failure are handled separately (see docs/ARCHITECTURE.md):
 *   1. programmer error      WEFT_ASSERT, always on
 *   2. bad bytes of a peer   dropped and counted, never returned to the caller
 *   3. local failure         a status from this list; must be checked
 *   4. loss                  data: a partial message is success with a received mask
 *
 * Unless its comment states otherwise, a function that returns a status writes its outputs only on
 * WEFT_OK.
 */
#ifndef WEFT_BASE_STATUS_H
#define WEFT_BASE_STATUS_H

#include <weft/status.h>

#endif
