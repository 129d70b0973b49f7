#!/usr/bin/env bash
# Whole disks: each gets a GPT with one partition of our own type, which is the member. Other tools see it; the pool is found again after the nodes were made
# by another boot of the kernel; a disk takes the place of another; where a partition would be too small the bare disk is used.
. "$(dirname "$(realpath "$0")")/lib.sh"

inside() {
    pool_in /dev/shm/pool
    NOTES=/dev/shm/notes
    must "create" "$WINDROW" pool create --redundancy 5 --segment 256K --chunk 64K tank /dev/vd[abcd]
    [ -b /dev/vda1 ] && pass "the disk has a partition" || give_up "no partition"
    [ $(($(cat /sys/block/vda/vda1/start) % 2048)) = 0 ] && pass "it is aligned" || fail "it begins at sector $(cat /sys/block/vda/vda1/start)"
    "$WINDROW" inspect-id --udev /dev/vda1 | grep -q '^ID_FS_TYPE=windrow_member$' && pass "it says what it is" || fail "inspect-id: $("$WINDROW" inspect-id --udev /dev/vda1)"
    if command -v blkid >/dev/null; then
        [ "$(blkid -p -o value -s PTTYPE /dev/vda)" = gpt ] && pass "blkid sees the table" || fail "blkid: $(blkid -p /dev/vda)"
    fi
    must "volume" "$WINDROW" volume create tank/data 16M
    rm -r "$WINDROW_STATE"
    must "found on partitions that are not known" "$WINDROW" pool import tank
    serve || give_up "start"
    must "load" load --seconds 20 --seed 1
    must "disk e takes the place of b" "$WINDROW" pool replace tank 1 /dev/vde
    [ -b /dev/vde1 ] && pass "it has a partition, too" || fail "no partition on the new disk"
    must "it is whole" wait_until_whole
    must "judged" judge
    end_sound
}

if [ -n "${GUEST:-}" ]; then
    inside
else
    guest --disks 5 --disk-size 64M --disk-dir "$WORK"
    exit $?
fi
exit $FAILED
