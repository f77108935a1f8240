#!/bin/sh
# Checks that the layers are pure: no system call, no clock, no printing, no allocation after init.
# Usage: pure.sh <pure.allow> <archive.a>...      one TAP case per archive
#
# How: a layer can only reach the system through a symbol that its archive does not define. Every
# such symbol, seen in the relocations of the object code, must be in pure.allow, and where that
# file restricts the callers, the function that holds the relocation must match. Inline assembler
# with a syscall instruction would escape the symbol table, so the disassembly is searched for it.
#
# The simulator's archive has another rule (sim_deny below): virtual time only, no sockets, and no
# randomness except the seed's; otherwise the same seed would not give the same run. node and api
# have a third rule (print_deny), because they are part of libweft.so, which must not write to a program's
# terminal.
#
# Run on the release build: sanitizers add calls of their own. pure_self.sh shows that it can fail.
set -u
LC_ALL=C
export LC_ALL
allow=$1
shift

sim_deny='clock_gettime|clock_nanosleep|gettimeofday|time|times|clock|nanosleep|usleep|sleep|rand|rand_r|random|srand|srandom|drand48|getrandom|getentropy|arc4random|socket|socketpair|pipe|connect|bind|send|sendto|sendmsg|sendmmsg|recv|recvfrom|recvmsg|recvmmsg|poll|ppoll|select|epoll_wait|pthread_create|fork|getpid'

print_deny='(v|f|vf|d|vd)?printf|f?puts|f?putc|putchar|perror|stdout|stderr|v?warnx?|v?errx?|error'
# The exception: the address of /metrics is printed. WEFT_METRICS in the environment may have
# enabled it without the program's knowledge (docs/METRICS.md).
print_allow='^libweft_api:(.*/)?metrics\.c\.o$'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Symbols that the given archives define themselves are not the system's.
for archive in "$@"; do
    nm --defined-only --extern-only "$archive" 2>/dev/null
done | awk 'NF == 3 { print $3 }' | sort -u >"$work/defined"

# Prints "symbol caller object" for each symbol that the archive $1 needs from outside. Relocations
# in data (a table of function pointers) have the caller "(data)".
needs() {
    objdump -dr --no-show-raw-insn "$1" >"$work/text" || return 1
    objdump -r "$1" >"$work/relocations" || return 1
    nm -u "$1" | awk 'NF == 2 && $1 == "U" { print $2 }' | sort -u |
        grep -v -x -F -f "$work/defined" >"$work/outside"
    awk '
        FILENAME ~ /outside$/ { outside[$1] = 1; next }
        FILENAME ~ /text$/ && / file format / { object = $1; sub(/:$/, "", object); next }
        FILENAME ~ /text$/ && /^[0-9a-f]+ <.*>:$/ {
            caller = $2
            gsub(/[<>:]/, "", caller)
            sub(/\.(part|constprop|isra|cold|lto_priv|localalias)[.0-9a-z]*$/, "", caller)
            next
        }
        FILENAME ~ /text$/ && /\tsyscall|\tsysenter|\tint +\$0x80|\tsvc\t|\trdtsc|\trdrand/ {
            print "(instruction:" $2 ")", caller, object; next
        }
        FILENAME ~ /text$/ && /R_[A-Z0-9_]+/ {
            symbol = $NF
            sub(/[-+]0x[0-9a-f]+$/, "", symbol)
            if (symbol in outside) { print symbol, caller, object; seen[symbol] = 1 }
            next
        }
        FILENAME ~ /relocations$/ && / file format / { object = $1; sub(/:$/, "", object); next }
        FILENAME ~ /relocations$/ && /^RELOCATION RECORDS FOR/ { section = $4; next }
        FILENAME ~ /relocations$/ && section !~ /\[\.(text|debug|eh_frame|rela?\.)/ && / R_/ {
            symbol = $NF
            sub(/[-+]0x[0-9a-f]+$/, "", symbol)
            if (symbol in outside) { print symbol, "(data)", object; seen[symbol] = 1 }
        }
        # An unreadable relocation is an error, so that no symbol is missed.
        END { for (symbol in outside) if (!(symbol in seen)) print symbol, "(unknown)", "?" }
    ' "$work/outside" "$work/text" "$work/relocations" | sort -u
}

# Reads the lines of `needs` and prints those that pure.allow does not permit.
violations() {
    awk '
        FILENAME != "-" && /^[ \t]*(#|$)/ { next }
        FILENAME != "-" { callers[$1] = $2; next }
        {
            symbol = $1
            if (symbol ~ /^__.*_chk$/) { sub(/^__/, "", symbol); sub(/_chk$/, "", symbol) }
            if (!(symbol in callers)) {
                print $1 ", called by " $2 " (" $3 "): not in pure.allow"
            } else if (callers[symbol] != "*" && $2 !~ ("^(" callers[symbol] ")$")) {
                print $1 ", called by " $2 " (" $3 "): only for " callers[symbol]
            }
        }' "$allow" -
}

count=0
failed=0
for archive in "$@"; do
    count=$((count + 1))
    name=$(basename "$archive" .a)
    if ! needs "$archive" >"$work/needs" || ! nm "$archive" 2>/dev/null | grep -q ' T '; then
        found="cannot be read, or defines no function"
    elif [ "$name" = libweft_sim ]; then
        found=$(awk -v deny="^($sim_deny)\$" '
            $1 ~ deny || $1 ~ /^\(/ { print $1 ", called by " $2 " (" $3 "): not in a simulator" }
            ' "$work/needs")
    elif [ "$name" = libweft_node ] || [ "$name" = libweft_api ]; then
        found=$(awk -v deny="^($print_deny)\$" -v allow="$print_allow" -v name="$name" '
            { symbol = $1; object = name ":" $3; sub(/^__/, "", symbol); sub(/_chk$/, "", symbol) }
            symbol ~ deny && object !~ allow {
                print $1 ", called by " $2 " (" $3 "): a library does not print"
            }' "$work/needs")
    else
        found=$(violations <"$work/needs")
    fi
    if [ -z "$found" ]; then
        echo "ok $count - $name"
    else
        failed=1
        echo "not ok $count - $name"
        printf '%s\n' "$found" | sed 's/^/#   /'
    fi
done
echo "1..$count"
exit $failed
