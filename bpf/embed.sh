#!/bin/sh
# Prints C that holds a file's bytes: embed.sh NAME FILE > NAME.c defines `NAME` and `NAME_bytes`.
set -eu
printf '/* Made by bpf/embed.sh from %s. */\n#include "lab/bpf_objects.h"\n\n' "$(basename "$2")"
# The ELF reader wants it aligned.
printf '_Alignas(16) const unsigned char %s[] = {\n' "$1"
od -An -v -tx1 "$2" | sed 's/ \(..\)/0x\1,/g'
printf '};\nconst size_t %s_bytes = sizeof(%s);\n' "$1" "$1"
