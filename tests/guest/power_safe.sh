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
        # What has failed already is not to be cut off.
        [ $FAILED = 0 ] || exit 1
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
    local disks=()
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
    is_flushed() { [ -e "$WORK/out/flushed" ]; }
    cut_power_when is_flushed "${disks[@]}" --modules ext4 --env WRITES="$WRITES"
    pass "the power went"
    guest "${disks[@]}" --modules ext4
    exit $?
}

if [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
