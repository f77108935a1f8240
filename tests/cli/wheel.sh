#!/bin/sh
# The package of tools/wheel: installed by pip into an environment without other parts of weft, it
# works with its bundled library, and PyTorch finds the backend through its entry point. Without a
# package index this is skipped. WEFT_PYTHON: as for torch.sh.
# shellcheck source=tests/lib/tap.sh
. "$WEFT_SOURCE_ROOT/tests/lib/tap.sh"

if [ "$WEFT_BUILD_NAME" != release ]; then
    tap_skip "the wheel" "not in the $WEFT_BUILD_NAME build"
    tap_done
fi
# A Python with torch, if available.
python=
torch=
for modules in "cffi, numpy, torch" "cffi, numpy"; do
    for candidate in ${WEFT_PYTHON:+"$WEFT_PYTHON"} "$WEFT_BUILD_ROOT/venv/bin/python" python3 \
        /usr/bin/python3; do
        if [ -z "$python" ] && "$candidate" -c "import $modules" 2>/dev/null; then
            python=$candidate
            case $modules in *torch*) torch=1 ;; esac
        fi
    done
done
if [ -z "$python" ]; then
    tap_skip "the wheel" "no Python with cffi and numpy (Debian: python3-cffi, python3-numpy)"
    tap_done
fi
if ! git -C "$WEFT_SOURCE_ROOT" rev-parse --git-dir >/dev/null 2>&1; then
    tap_skip "the wheel" "not a git checkout, from which the source archive is made"
    tap_done
fi
unset PYTHONPATH LD_LIBRARY_PATH WEFT_LIBRARY WEFT_JOB_KEY WEFT_KEY_FILE WEFT_HOST MASTER_ADDR \
    MASTER_PORT RANK WORLD_SIZE WEFT_PYTHON
OMP_NUM_THREADS=1
export OMP_NUM_THREADS

# A separate checkout with the current files, committed or not.
tree=$tap_tmp/tree
mkdir "$tree"
(cd "$WEFT_SOURCE_ROOT" && git ls-files --cached --others --exclude-standard | while read -r file; do
    [ ! -e "$file" ] || echo "$file"
done | tar -cf - -T -) | tar -xf - -C "$tree"
git -C "$tree" init --quiet
git -C "$tree" add --all
git -C "$tree" -c user.name=test -c user.email=test@localhost commit --quiet --message "a test"

cd "$tap_tmp" || exit 1
tap_keep "$tree/tools/wheel" "$tap_tmp/dist" || true
if [ "$tap_got" = 77 ]; then
    sed 's/^/#   /' run.out
    tap_skip "the wheel" "the tools that build it cannot be installed: no package index?"
    tap_done
fi
tap_is "tools/wheel exits with 0" "$tap_got $([ "$tap_got" = 0 ] || cat run.out)" "0 "
[ "$tap_got" = 0 ] || tap_done
version=$("$WEFT_BIN" --version | sed 's/^weft //')
wheel=$(ls dist/*.whl)
tap_like "the wheel is for Python 3 on manylinux" "$wheel" \
    "^dist/weft-$version-py3-none-manylinux_.*_$(uname -m)\.whl$"
tap_is "the source archive has the version" "$(ls dist/*.tar.gz)" "dist/weft-$version.tar.gz"

"$python" -c 'import sys, zipfile; print("\n".join(zipfile.ZipFile(sys.argv[1]).namelist()))' \
    "$wheel" | grep -v '/$' >names
tap_is "the wheel has every module" "$(grep '\.py$' names | sort)" \
    "$(cd "$tree/python" && find weft weft_torch_backend.py -name '*.py' | sort)"
tap_is "the wheel has the library" "$(grep -c '^weft/libweft\.so\.0$' names)" 1
tap_like "the wheel has libcrypto" "$(cat names)" '^weft\.libs/libcrypto-.*\.so'
tap_like "the wheel has the licence" "$(cat names)" '/licenses/LICENSE$'
if [ -f /etc/debian_version ]; then
    tap_like "the wheel has OpenSSL's licence" "$(cat names)" '/licenses/libssl3'
fi
tap_is "the wheel has no other file" \
    "$(grep -v '\.py$\|^weft/libweft\.so\.0$\|^weft\.libs/\|\.dist-info/' names)" ""

# An environment with only numpy, cffi and torch of that interpreter.
"$python" -m venv site
packages=$(echo site/lib/python3*/site-packages)
"$python" -c '
import importlib.util, pathlib
for name in "numpy", "cffi", "_cffi_backend", "torch":
    found = importlib.util.find_spec(name)
    if found:
        path = pathlib.Path(found.origin)
        print((path.parent if path.name != "__init__.py" else path.parent.parent).resolve())
' | sort -u >"$packages/theirs.pth"
tap_run "pip installs the wheel" site/bin/python -m pip --disable-pip-version-check install --quiet \
    --no-deps --no-index "$wheel"

cat >ranks.py <<'EOF'
import multiprocessing, numpy as np
from weft import coll

def rank_of(rank, ends, pipe):
    with coll.Communicator(rank, 2, key=bytes(range(32))) as comm:
        pipe.send(comm.address)
        comm.join(pipe.recv())
        values = np.full(1000, rank + 1, dtype=np.float32)
        total = comm.all_reduce(values)
        ends.put(float(total.min() + total.max()))

if __name__ == "__main__":
    spawn = multiprocessing.get_context("spawn")
    ends, pipes = spawn.Queue(), [spawn.Pipe() for _ in range(2)]
    ranks = [spawn.Process(target=rank_of, args=(r, ends, pipes[r][1])) for r in range(2)]
    for process in ranks:
        process.start()
    addresses = [mine.recv() for mine, _ in pipes]
    for mine, _ in pipes:
        mine.send(addresses)
    print("sums", ends.get(timeout=60), ends.get(timeout=60))
    for process in ranks:
        process.join()
    import weft
    maps = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    print("version", weft.__version__)
    print("library", *sorted(path for path in maps if "libweft" in path))
    print("libcrypto", *sorted(path for path in maps if "/weft.libs/libcrypto" in path))
EOF
tap_run "two ranks of all_reduce succeed" site/bin/python ranks.py
tap_like "both ranks have the sum" "$(cat run.out)" '^sums 6.0 6.0$'
tap_like "the package has the version" "$(cat run.out)" "^version $version\$"
here=$(cd "$packages" && pwd -P)
tap_like "the library of the package is loaded" "$(cat run.out)" "^library $here/weft/libweft\.so\.0\$"
tap_like "the libcrypto of the package is loaded" "$(cat run.out)" "^libcrypto $here/weft\.libs/libcrypto"

if [ -z "$torch" ]; then
    tap_skip "PyTorch finds the backend" "no Python with torch (install one with tools/venv, or set WEFT_PYTHON)"
    tap_done
fi
if ! "$python" -c '
import sys, torch
sys.exit(tuple(int(n) for n in torch.__version__.split(".")[:2]) < (2, 5))'; then
    tap_skip "PyTorch finds the backend" "this PyTorch is older than 2.5 and has no entry points for backends"
    tap_done
fi
cat >script.py <<'EOF'
import torch, torch.distributed as dist
print("torch imported", flush=True)
dist.init_process_group("weft")
t = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(t)
# In one write, because the two ranks share the pipe and end at the same time.
print(f"sum {t[0].item()} {dist.get_backend()}\n", end="", flush=True)
dist.destroy_process_group()
EOF
tap_run "torchrun runs a script that does not import weft" site/bin/python -m torch.distributed.run \
    --standalone --nproc_per_node 2 script.py
tap_is "both ranks have the sum" "$(grep -c '^sum 3.0 weft$' run.out)" 2

# If the library is unusable, `import torch` still works, and creating the group reports the cause.
MASTER_ADDR=127.0.0.1 MASTER_PORT=0 RANK=0 WORLD_SIZE=1
export MASTER_ADDR MASTER_PORT RANK WORLD_SIZE
library=$packages/weft/libweft.so.0
refused() { # refused <name> <regular expression>
    tap_run_fails "$1: the script fails" 1 site/bin/python script.py
    tap_is "$1: import torch succeeds" "$(head -n 1 run.out)" "torch imported"
    tap_like "$1: the error of init_process_group says why" "$(tail -n 1 run.out)" "^ImportError: $2"
}
echo "no library" >"$library"
refused "a text file" "libweft.so does not load: .*$here/weft/libweft.so.0.*; .*pip install"
echo 'const char *weft_version(void) { return "9.9.9"; }' >other.c
cc -shared -fPIC other.c -o "$library"
refused "another release" "the library $here/weft/libweft.so.0 is weft 9.9.9, but .* weft $version, .*pip install"
rm "$library"
WEFT_LIBRARY=$here/weft/libweft.so.0 refused "no library" "libweft.so is not found: .*WEFT_LIBRARY"
if ! ldconfig -p 2>/dev/null | grep -q libweft || [ -n "${LD_LIBRARY_PATH:-}" ]; then
    refused "no library in the system" "libweft.so is not found: .*pip install \..*make install"
else
    tap_skip "no library in the system" "this system has one"
fi
tap_done
