/* WEFT_API marks what libweft.so exports; every other symbol of the library is hidden. */
#ifndef WEFT_EXPORT_H
#define WEFT_EXPORT_H

#define WEFT_API __attribute__((visibility("default")))

#endif
