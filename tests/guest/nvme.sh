#!/usr/bin/env bash
# NVMe disks, RAID-6: emptied segments are discarded on them; a disk whose place another has taken comes back with all that it held, is zeroed by the kernel
# before it is labelled again, and takes a place. Nothing that was promised may be lost.
. "$(dirname "$(realpath "$0")")/lib.sh"

disk() { echo "/dev/nvme$1n1"; }
# Of the counters of the kernel (iostats.rst): discards completed, and sectors discarded.
discards() { awk '{print $12}' "/sys/block/nvme$1n1/stat"; }
discarded_sectors() { awk '{print $14}' "/sys/block/nvme$1n1/stat"; }
# Bytes of a disk that are not zero.
bytes_that_are_not_zero() { tr -d '\0' < "$(disk "$1")" | wc -c; }

inside() {
    pool_in /dev/shm/pool
    NOTES=/dev/shm/notes
    local disks=() number
    for number in 0 1 2 3 4; do disks+=("$(disk $number)"); done
    [ "$(cat /sys/block/nvme0n1/queue/discard_max_bytes)" -gt 0 ] || give_up "the disks take no discards"
    [ "$(cat /sys/block/nvme0n1/queue/write_zeroes_max_bytes)" -gt 0 ] || give_up "the disks take no write-zeroes"
    must "create" "$WINDROW" pool create --whole-disk --redundancy 6 --segment 256K --chunk 64K tank "${disks[@]}"
    must "volume" "$WINDROW" volume create tank/data 16M
    serve || give_up "start"
    must "load" load --seconds 20 --seed 1
    must "judged" judge
    [ "$(discards 0)" -gt 0 ] && pass "$(discards 0) discards, $(discarded_sectors 0) sectors of disk 0" || fail "disk 0 was never told what is empty"

    # All of disk 4, as it is while the pool runs: what it would have if it were pulled now.
    dd if="$(disk 4)" of=/dev/shm/pulled bs=1M status=none || give_up "copy"
    must "disk 5 takes the place of 4" "$WINDROW" pool replace tank 4 "$(disk 5)" --whole-disk
    must "load while it is rebuilt" load --seconds 5 --seed 2
    must "it is whole" wait_until_whole
    dd if=/dev/shm/pulled of="$(disk 4)" bs=1M conv=fsync status=none || give_up "copy back"
    "$WINDROW" pool add tank --spare "$(disk 4)" --whole-disk >/dev/null 2>&1 && fail "a disk that holds something was taken without a question" || pass "what it holds is not overwritten unasked"
    must "disk 4 comes back as a spare" "$WINDROW" pool add tank --spare "$(disk 4)" --overwrite --whole-disk
    local left
    left=$(bytes_that_are_not_zero 4)
    [ "$left" -lt 16384 ] && pass "$left bytes of it are not zero: its label" || fail "$left bytes of what it held are left"

    # Empty, disk 0 is no member any more: the spare takes its place.
    kill_server
    dd if=/dev/zero of="$(disk 0)" bs=1M conv=fsync status=none 2>/dev/null
    serve --spare-patience 2 || give_up "start without disk 0"
    must "judged without disk 0" judge
    must "load while the spare is rebuilt" load --seconds 5 --seed 3
    must "the spare has taken its place" wait_until_whole
    must "judged" judge
    must "all is right" "$WINDROW" pool scrub tank --wait
    end_sound
}

if [ -n "${GUEST:-}" ]; then
    inside
else
    guest --disks 6 --disk-size 64M --disk-dir "$WORK" --nvme
    exit $?
fi
exit $FAILED
