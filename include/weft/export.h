/* WEFT_API marks what libweft.so exports; every other symbol of the library is hidden.
 * WEFT_NODISCARD makes the compiler say when a result is not looked at, where the language knows
 * how (C23, C++17). */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#define WEFT_API __attribute__((visibility("default")))

#if defined(__cplusplus) ? __cplusplus >= 201703L : __STDC_VERSION__ > 201710L
#define WEFT_NODISCARD [[nodiscard]]
#else
#define WEFT_NODISCARD
#endif

#endif
