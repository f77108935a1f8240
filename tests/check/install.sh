#!/bin/sh
# `make install` installs the library where pkg-config and the loader of this system search, also
# without dpkg-architecture (dpkg-dev), which meson would run. The installed tree is a small test
# tree with the real Makefile and tools.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

if [ ! -f /etc/debian_version ]; then
    tap_skip "make install" "not Debian: meson chooses the directory"
    tap_done
fi
unset MAKEFLAGS MFLAGS PREFIX LIBDIR DESTDIR PKG_CONFIG_PATH PKG_CONFIG_LIBDIR LD_LIBRARY_PATH
export WEFT_BOOTSTRAP=no

tree=$tap_tmp/tree
mkdir -p "$tree/tools" "$tap_tmp/bin"
cp "$WEFT_SOURCE_ROOT/Makefile" "$tree/"
cp "$WEFT_SOURCE_ROOT/tools/build" "$WEFT_SOURCE_ROOT/tools/install" \
    "$WEFT_SOURCE_ROOT/tools/bootstrap" "$tree/tools/"
echo 'int weft_answer(void) { return 42; }' >"$tree/answer.c"
cat >"$tree/meson.build" <<'MESON'
project('weft', 'c', version: '0.1.0', meson_version: '>=1.0.0')
library = shared_library('weft', 'answer.c', version: '0.1.0', install: true)
import('pkgconfig').generate(name: 'weft', description: 'a stand-in', libraries: library)
MESON
printf 'int weft_answer(void);\nint main(void) { return weft_answer() == 42 ? 0 : 1; }\n' >"$tap_tmp/user.c"

# All programs of this system except dpkg-architecture, and an ldconfig that changes nothing.
for folder in $(echo "$PATH" | tr ':' ' ') /usr/sbin /sbin; do
    ln -s "$folder"/* "$tap_tmp/bin/" 2>/dev/null
done
real_ldconfig=$(readlink -f "$tap_tmp/bin/ldconfig")
rm -f "$tap_tmp/bin/dpkg-architecture" "$tap_tmp/bin/ldconfig"
cat >"$tap_tmp/bin/ldconfig" <<'FAKE'
#!/bin/sh
echo "ldconfig $*" >>"$CALLS"
FAKE
chmod +x "$tap_tmp/bin/ldconfig"
CALLS=$tap_tmp/calls
PATH=$tap_tmp/bin
export CALLS PATH
tap_run_fails "dpkg-architecture is not in PATH" 127 sh -c 'dpkg-architecture -qDEB_HOST_MULTIARCH'

# ---- as in the README, into an empty root ----
root=$tap_tmp/root
tap_run "make install with DESTDIR succeeds" make -C "$tree" install DESTDIR="$root"
tap_is "it does not run ldconfig" "$(cat "$CALLS" 2>/dev/null)" ""
found=$(find "$root" -name weft.pc)
seen=${found#"$root"}
tap_like "pkg-config searches ${seen%/weft.pc}" \
    ":$(pkg-config --variable pc_path pkg-config):" ":${seen%/weft.pc}:"
found=$(find "$root" -name libweft.so.0)
seen=${found#"$root"}
# It prints each folder, also missing ones.
tap_like "the loader searches ${seen%/libweft.so.0}" \
    "$("$real_ldconfig" -N -X -v 2>&1 | grep ' \?/usr/local')" "\(^\|[ :]\)${seen%/libweft.so.0}:"

# The usual folders in that root.
PKG_CONFIG_LIBDIR=$(pkg-config --variable pc_path pkg-config | sed "s#^#:#; s#:/#:$root/#g; s#^:##")
tap_run "a program is compiled with the flags of pkg-config" \
    sh -c 'cc "$1/user.c" $(PKG_CONFIG_LIBDIR=$2 PKG_CONFIG_SYSROOT_DIR=$3 pkg-config --cflags --libs weft) -o "$1/user"' \
    sh "$tap_tmp" "$PKG_CONFIG_LIBDIR" "$root"
tap_run "the program runs" env LD_LIBRARY_PATH="${found%/libweft.so.0}" "$tap_tmp/user"

# ---- the same folder with dpkg-dev, which meson itself would choose ----
printf '#!/bin/sh\nexec cc -print-multiarch\n' >"$tap_tmp/bin/dpkg-architecture"
chmod +x "$tap_tmp/bin/dpkg-architecture"
tap_run "make install with dpkg-architecture succeeds" make -C "$tree" install DESTDIR="$tap_tmp/root-2"
tap_is "it installs the same files" "$(cd "$tap_tmp/root-2" && find . | sort)" "$(cd "$root" && find . | sort)"

# ---- another prefix: the output names the variables to set ----
: >"$CALLS"
tap_run "make install with PREFIX succeeds" make -C "$tree" install PREFIX="$tap_tmp/own" LIBDIR=lib
out=$(cat "$tap_tmp/run.out")
tap_like "it runs ldconfig if it is root" "$(id -u) $(cat "$CALLS")" '^0 ldconfig\|^[1-9]'
PKG_CONFIG_PATH=$(echo "$out" | sed -n 's/.*export PKG_CONFIG_PATH=//p')
LD_LIBRARY_PATH=$(echo "$out" | sed -n 's/.*export LD_LIBRARY_PATH=//p')
tap_is "it prints PKG_CONFIG_PATH" "$PKG_CONFIG_PATH" "$tap_tmp/own/lib/pkgconfig"
tap_is "it prints LD_LIBRARY_PATH" "$LD_LIBRARY_PATH" "$tap_tmp/own/lib"
export PKG_CONFIG_PATH LD_LIBRARY_PATH
tap_run "with these a program is compiled and runs" \
    sh -c 'cc "$1/user.c" $(pkg-config --cflags --libs weft) -o "$1/user" && "$1/user"' sh "$tap_tmp"

tap_done
