#!/usr/bin/env bash
# The power of the whole guest goes in the middle of a load; the disks stay. ROUNDS times, then everything is checked. Each boot starts the pool that the
# last cut left, judges it against notes that are kept outside, and loads until the next cut.
. "$(dirname "$(realpath "$0")")/lib.sh"
ROUNDS=${ROUNDS:-4}

inside() {
    pool_in /dev/shm/pool
    NOTES=/out/notes
    if [ ! -e $NOTES ]; then
        must "create" "$WINDROW" pool create --whole-disk --redundancy 5 --segment 256K --chunk 64K tank /dev/vd[abcd]
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
    local disks=()
    for disk in a b c d; do
        truncate -s 64M "$WORK/disk-$disk"
        disks+=(--disk "$WORK/disk-$disk")
    done
    local before
    promises() { grep -c '^p' "$WORK/out/notes" 2>/dev/null; }
    # In the middle of the load: after some promises.
    is_loaded() { [ "$(promises)" -ge $((${before:-0} + 3 + 4 * round)) ] 2>/dev/null; }
    for ((round = 0; round < ROUNDS; round++)); do
        echo $round > "$WORK/out/round"
        before=$(promises)
        cut_power_when is_loaded "${disks[@]}" --env ROUNDS="$ROUNDS"
        pass "cut $round, after $(wc -l < "$WORK/out/notes") notes, of them $(promises) promises"
    done
    echo "$ROUNDS" > "$WORK/out/round"
    guest "${disks[@]}" --env ROUNDS="$ROUNDS"
    exit $?
}

if [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
