#!/usr/bin/env bash
# A journal device that is declared power-safe and is a file: nobody flushes it, and its file system, which commits nothing by itself for minutes, learns
# only from synchronous writes what was written. The power of the whole guest goes behind WRITES blocks, each of which was flushed; the disks stay, and what
# had been sealed by then is on the members. So what is asked for are the last ones, which only the journal has, well behind its first 4 MiB: these are
# written when the device is made.
. "$(dirname "$(realpath "$0")")/lib.sh"
WRITES=${WRITES:-1500}
MEMBERS=/dev/vda,/dev/vdb,/dev/vdc,/dev/vdd,/mnt/journal/j0

inside() {
    pool_in /dev/shm/pool
    mkdir -p /mnt/journal
    mount -t ext4 -o commit=900 /dev/vde /mnt/journal || give_up "mount"
    if [ ! -e /out/flushed ]; then
        must "create" "$WINDROW" pool create --redundancy 5 --segment 256K --chunk 64K --size 32M --journal 0 --journal-device /mnt/journal/j0 \
            --journal-power-safe --seal-age 60000 tank /dev/vd[abcd]
        must "volume" "$WINDROW" volume create tank/data 16M
        sync
        serve --members $MEMBERS || give_up "start"
        mapfile -t commands < /out/commands
        must "written" qemu-io -f raw "nbd+unix:///data?socket=$SOCKET" "${commands[@]}"
        local records
        records=$("$WINDROW" stats $POOL -o json | grep -oE '"records":[0-9]+' | cut -d: -f2)
        [ "${records:-0}" -ge "$WRITES" ] || fail "only ${records:-no} records: what was flushed is elsewhere"
        touch /out/flushed
        sleep 600
        fail "the power did not go"
    else
        serve --members $MEMBERS || give_up "start"
        must "what was flushed is there" qemu-img compare -f raw -F raw /out/expected "nbd+unix:///data?socket=$SOCKET"
        stop_server
        must "check" check --members $MEMBERS
    fi
}

outside() {
    mkdir -p "$WORK/out"
    local disks=() status
    for disk in a b c d e; do
        truncate -s 64M "$WORK/disk-$disk"
        disks+=(--disk "$WORK/disk-$disk")
    done
    mkfs.ext4 -q "$WORK/disk-e" || give_up "a file system"
    # A block that does not compress: records are to take room.
    head -c 4096 /dev/urandom > "$WORK/out/block"
    for ((block = 0; block < WRITES; block++)); do
        printf -- '-c\nwrite -s /out/block %dk 4k\n-c\nflush\n' $((4 * block))
        cat "$WORK/out/block" >&3
    done > "$WORK/out/commands" 3> "$WORK/out/expected"
    truncate -s 16M "$WORK/out/expected"
    guest_command "${disks[@]}" --modules ext4
    "${COMMAND[@]}" &
    local machine=$!
    until [ -e "$WORK/out/flushed" ]; do
        kill -0 $machine 2>/dev/null || give_up "the guest ended before all was written"
        sleep 0.1
    done
    # Its end by a signal is SIGKILL for the virtual machine.
    kill -TERM $machine
    wait $machine 2>/dev/null
    status=$?
    [ $status = 130 ] || give_up "the guest ended with $status instead of a power cut"
    pass "the power went"
    guest "${disks[@]}" --modules ext4
    exit $?
}

if [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
