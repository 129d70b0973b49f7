# Shared by the cases of this folder. Each case is one script with two halves: outside it prepares disks, starts the guest with itself as the
# command, and judges what is left; inside (GUEST=1) it runs the pool on the guest's kernel. Needed from `cargo xtask guest`:
#   GUEST_DIR   folder with run-guest.sh        WINDROW, PROMISES   the programs        WORK   an empty folder for disks and results
# shellcheck shell=bash
set -u
HERE=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
CASE=$(basename "$0" .sh)
FAILED=0

pass() { echo "PASS $CASE: $*"; }
fail() { echo "FAIL $CASE: $*"; FAILED=1; }
# A command that has to succeed; its output is shown only if it does not.
must() {
    local what=$1 said
    shift
    said=$("$@" 2>&1)
    local status=$?
    if [ $status = 0 ]; then
        pass "$what${said:+ (${said##*$'\n'})}"
    else
        fail "$what: $*: status $status: $said"
    fi
}
give_up() { fail "$*"; exit 1; }

guest_command() { # options of run-guest.sh; COMMAND is what runs the inner half
    COMMAND=("$GUEST_DIR/run-guest.sh" --out "$WORK/out" --env WINDROW="$WINDROW" --env PROMISES="$PROMISES" --timeout "${GUEST_TIMEOUT:-1200}" "$@" -- bash "$(realpath "$0")")
}
guest() { guest_command "$@"; "${COMMAND[@]}"; }
# Boots the guest, and takes its power when a command says that it is time. Its end by a signal is SIGKILL for the virtual machine. (Its own option --power-cut
# counts from the boot, which may take any time.)
cut_power_when() { # that command, then options of run-guest.sh
    local is_time=$1 machine status
    shift
    guest_command "$@"
    "${COMMAND[@]}" &
    machine=$!
    until $is_time; do
        kill -0 $machine 2>/dev/null || give_up "the guest ended before its power was to go"
        sleep 0.1
    done
    kill -TERM $machine
    wait $machine 2>/dev/null
    status=$?
    [ $status = 130 ] || give_up "the guest ended with $status instead of a power cut"
}

# --- the pool, inside or outside --------------------------------------------------------------------------
POOL=tank
SERVER=
pool_in() { # a folder for sockets and state
    RUN=$1
    mkdir -p "$RUN"
    export WINDROW_STATE=$RUN/state WINDROW_RUN=$RUN/run
    SOCKET=$RUN/nbd.sock
}

serve() { # further arguments of `windrow serve`
    : > "$RUN/ready"
    "$WINDROW" serve $POOL -o json --no-memory-lock --nbd "unix:$SOCKET" "$@" > "$RUN/ready" 2> "$RUN/serve.log" &
    SERVER=$!
    until grep -q '"ready"' "$RUN/ready"; do
        kill -0 $SERVER 2>/dev/null || { cat "$RUN/serve.log"; return 1; }
        sleep 0.1
    done
}
kill_server() { kill -9 "$SERVER"; wait "$SERVER" 2>/dev/null; }
stop_server() {
    kill "$SERVER"
    if wait "$SERVER"; then pass "clean end"; else fail "the end is not clean: $(cat "$RUN/serve.log")"; return 1; fi
}

wait_until_whole() { # two minutes at most
    for _ in $(seq 120); do
        "$WINDROW" pool status $POOL --exit-code >/dev/null 2>&1 && return 0
        sleep 1
    done
    "$WINDROW" pool status $POOL
    return 1
}

load() { "$PROMISES" load --socket "$SOCKET" --notes "$NOTES" "$@"; }
judge() { "$PROMISES" judge --socket "$SOCKET" --notes "$NOTES" "$@"; }
check() { "$WINDROW" check $POOL --payload --parity "$@"; }

# A promise that nobody gave: if the judge lets it pass, its silence means nothing.
canary() {
    cp "$NOTES" "$RUN/canary.notes"
    printf 'w 0 1\np 99999999\n' >> "$RUN/canary.notes"
    local said
    said=$("$PROMISES" judge --socket "$SOCKET" --notes "$RUN/canary.notes" 2>&1)
    if [[ $said = *"lost: "* ]]; then pass "the judge finds a planted broken promise"; else fail "the judge overlooks a broken promise: $said"; fi
}
# What every case ends with, `check` with further arguments.
end_sound() {
    canary
    stop_server
    must "check" check "$@"
}
