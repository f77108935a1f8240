/* WEFT_API marks the symbols that libweft.so exports; all others are hidden. With WEFT_NODISCARD
 * the compiler warns about an ignored result, if the language supports it (C23, C++17). */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#define WEFT_API __attribute__((visibility("default")))

#if defined(__cplusplus) ? __cplusplus >= 201703L : __STDC_VERSION__ > 201710L
#define WEFT_NODISCARD [[nodiscard]]
#else
#define WEFT_NODISCARD
#endif

#endif
