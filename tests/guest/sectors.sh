#!/usr/bin/env bash
# Disks with sectors of 4 KiB: create, load, kill, start, judge; twice.
. "$(dirname "$(realpath "$0")")/lib.sh"

inside() {
    pool_in /dev/shm/pool
    NOTES=/dev/shm/notes
    [ "$(cat /sys/block/vda/queue/logical_block_size)" = 4096 ] || give_up "the disks have no sectors of 4 KiB"
    must "create" "$WINDROW" pool create --whole-disk --redundancy 5 --segment 256K --chunk 64K tank /dev/vd[abcd]
    must "volume" "$WINDROW" volume create tank/data 16M
    for round in 1 2; do
        serve || give_up "start $round"
        load --seconds 60 --seed "$round" > "$RUN/load.log" &
        local loader=$!
        sleep 10
        kill_server
        wait $loader
        [ $? = 3 ] || fail "the load did not end with the server: $(cat "$RUN/load.log")"
        serve || give_up "start after kill $round"
        must "after kill $round: $(head -1 "$RUN/load.log")" judge
        [ "$round" = 1 ] && kill_server
    done
    end_sound
}

if [ -n "${GUEST:-}" ]; then
    inside
else
    guest --disks 4 --disk-size 64M --disk-dir "$WORK" --blk-opts logical_block_size=4096,physical_block_size=4096
    exit $?
fi
exit $FAILED
