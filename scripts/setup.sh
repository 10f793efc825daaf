#!/bin/sh
# Creates the virtual environment $1 with all packages, pinned by constraints.txt. Safe to run again.
set -eu
venv=$1
python=${PYTHON:-python3}
log="$venv.log"

fail() {
    echo "setup: $1; the log is $log" >&2
    tail -n 20 "$log" >&2 || true
    exit 1
}

echo "setup: installing into $venv (once; a few minutes at most)"
: >"$log"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>>"$log" || fail "Python 3.10 or newer is needed"
if ! "$python" -m venv "$venv" >>"$log" 2>&1; then
    # Debian has venv in a separate package
    { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; } || fail "python3-venv is missing: install it and run again"
    { apt-get update && apt-get install -y --no-install-recommends python3-venv; } >>"$log" 2>&1 || fail "no python3-venv"
    "$python" -m venv "$venv" >>"$log" 2>&1 || fail "no virtual environment could be made"
fi
export PIP_DISABLE_PIP_VERSION_CHECK=1
"$venv/bin/pip" install -c constraints.txt torch numpy >>"$log" 2>&1 || fail "PyTorch could not be installed"
"$venv/bin/pip" install -c constraints.txt -e '.[dev]' >>"$log" 2>&1 || fail "mgrade could not be installed"
# only for the recordings that it bundles, which the demo and some tests use
"$venv/bin/pip" install -c constraints.txt --no-deps aeon >>"$log" 2>&1 || echo "setup: no aeon: the demo needs its data"
ls src/mgrade/ops/_kernels* >/dev/null 2>&1 || echo "setup: no C compiler: computing with the PyTorch reference"
touch "$venv/.ready"
echo "setup: done; \`. $venv/bin/activate\` puts mgrade on the path"
