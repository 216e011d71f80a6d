#!/usr/bin/env bash
# Links our programs statically, where glibc is. Cargo calls it with rustc and its arguments, for
# the crates of this workspace. Flags for all of rustc would hold for procedural macros as well,
# which are libraries that rustc loads, and such a one cannot be static. It is for bash: other shells
# drop variables whose names have a hyphen, as those of programs in tests do.
rustc=$1
shift
case " $* " in
    *" --target "*) case " $* " in *"-linux-gnu "*) gnu=1 ;; esac ;;
    *) [ "$(uname -s)" = Linux ] && gnu=1 ;;
esac
case "$gnu $* " in
    # What cargo asks before it builds: it must not hear that nothing but programs can be built.
    *" --crate-name ___ "*) ;;
    # They do not take static programs.
    *sanitizer*) ;;
    1*" --crate-type bin "*) set -- "$@" -C target-feature=+crt-static -C relocation-model=static ;;
esac
exec "$rustc" "$@"
