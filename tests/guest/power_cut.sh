#!/usr/bin/env bash
# The power of the whole guest goes in the middle of a load; the disks stay. ROUNDS times, then everything is checked. Each boot starts the pool that the
# last cut left, judges it against notes that are kept outside, and loads until the next cut.
. "$(dirname "$(realpath "$0")")/lib.sh"
ROUNDS=${ROUNDS:-4}

inside() {
    pool_in /dev/shm/pool
    NOTES=/out/notes
    if [ ! -e $NOTES ]; then
        must "create" "$WINDROW" pool create --redundancy 5 --segment 256K --chunk 64K tank /dev/vd[abcd]
        must "volume" "$WINDROW" volume create tank/data 16M
    fi
    serve --members /dev/vda,/dev/vdb,/dev/vdc,/dev/vdd || give_up "start"
    [ -e $NOTES ] && must "judged" judge
    if [ "$(cat /out/round)" -lt "$ROUNDS" ]; then
        [ $FAILED = 0 ] && load --seconds 600 --seed "$(cat /out/round)"
        fail "the power did not go"
    else
        end_sound --members /dev/vda,/dev/vdb,/dev/vdc,/dev/vdd
    fi
}

outside() {
    mkdir -p "$WORK/out"
    local disks=() status
    for disk in a b c d; do
        truncate -s 64M "$WORK/disk-$disk"
        disks+=(--disk "$WORK/disk-$disk")
    done
    promises() { grep -c '^p' "$WORK/out/notes" 2>/dev/null; }
    for ((round = 0; round < ROUNDS; round++)); do
        echo $round > "$WORK/out/round"
        local before
        before=$(promises)
        guest_command "${disks[@]}" --env ROUNDS="$ROUNDS"
        "${COMMAND[@]}" &
        local machine=$!
        # In the middle of the load: after some promises.
        until [ "$(promises)" -ge $((${before:-0} + 3 + 4 * round)) ] 2>/dev/null; do
            kill -0 $machine 2>/dev/null || give_up "round $round ended before the load"
            sleep 0.1
        done
        # Its end by a signal is SIGKILL for the virtual machine. (Its own option --power-cut counts from the boot, which may take any time.)
        kill -TERM $machine
        wait $machine 2>/dev/null
        status=$?
        [ $status = 130 ] || give_up "round $round ended with $status instead of a power cut"
        pass "cut $round, after $(wc -l < "$WORK/out/notes") notes, of them $(promises) promises"
    done
    echo "$ROUNDS" > "$WORK/out/round"
    guest "${disks[@]}" --env ROUNDS="$ROUNDS"
    exit $?
}

if [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
