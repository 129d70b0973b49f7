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
        [ $FAILED = 0 ] && touch /out/loading && load --seconds 600 --seed "$(cat /out/round)"
        fail "the power did not go"
    else
        canary
        stop_server
        must "check" check --members /dev/vda,/dev/vdb,/dev/vdc,/dev/vdd
    fi
}

outside() {
    mkdir -p "$WORK/out"
    local disks=() status
    for disk in a b c d; do
        truncate -s 64M "$WORK/disk-$disk"
        disks+=(--disk "$WORK/disk-$disk")
    done
    for ((round = 0; round < ROUNDS; round++)); do
        echo $round > "$WORK/out/round"
        rm -f "$WORK/out/loading"
        local before
        before=$(wc -l 2>/dev/null < "$WORK/out/notes" || echo 0)
        guest_command "${disks[@]}" --env ROUNDS="$ROUNDS"
        "${COMMAND[@]}" &
        local machine=$!
        until [ -e "$WORK/out/loading" ]; do kill -0 $machine 2>/dev/null || give_up "round $round ended before the load"; sleep 0.1; done
        sleep $((2 + 3 * round))
        # Its end by a signal is SIGKILL for the virtual machine. (Its own option --power-cut counts from the boot, which may take any time.)
        kill -TERM $machine
        wait $machine
        status=$?
        [ $status = 130 ] || give_up "round $round ended with $status instead of a power cut"
        pass "cut $round, $(($(wc -l < "$WORK/out/notes") - before)) further notes, of them $(grep -c '^p' "$WORK/out/notes") promises in all"
    done
    echo "$ROUNDS" > "$WORK/out/round"
    guest "${disks[@]}" --env ROUNDS="$ROUNDS"
    exit $?
}

if [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
