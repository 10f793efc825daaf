#!/bin/sh
# Installs the tools that test exports and pages: compilers, linkers, QEMU for Arm Cortex-M, Node and Chromium. Safe to
# run again, and quick if all are installed. Without them, nothing fails: the tests that need them are skipped.
set -u

has() { command -v "$1" >/dev/null 2>&1; }

missing() {
    has qemu-system-arm || echo qemu-system-arm
    has arm-none-eabi-gcc || echo gcc-arm-none-eabi
    case "$(arm-none-eabi-gcc -print-file-name=libc.a 2>/dev/null)" in /*) ;; *) echo libnewlib-arm-none-eabi ;; esac
    has clang-19 || echo clang-19
    has wasm-ld-19 || echo lld-19
    has node || echo nodejs
    has chromium || has chromium-browser || has google-chrome || echo chromium
}

packages=$(echo $(missing))
[ -n "$packages" ] || exit 0

if [ "$(id -u 2>/dev/null)" = 0 ]; then
    root=
elif has sudo && sudo -n true 2>/dev/null; then
    root="sudo -n"
else
    root=none
fi
if [ "$root" != none ] && has apt-get; then
    echo "tools: installing $packages (once; a few minutes at most)"
    apt="$root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::http::Timeout=20 -o Acquire::Retries=1"
    $apt update >/dev/null 2>&1
    # all at once, else one by one: a system may lack some of them
    $apt install -y --no-install-recommends $packages >/dev/null 2>&1 ||
        for package in $packages; do $apt install -y --no-install-recommends "$package" >/dev/null 2>&1; done
    packages=$(echo $(missing))
fi
[ -z "$packages" ] || echo "tools: not here: $packages; tests that need them are skipped"
exit 0
