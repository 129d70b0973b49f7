#!/usr/bin/env bash
# Members on dm-flakey, redundancy 6: up to two of five drop writes in silence, fail them, fail reads, corrupt a byte of what is read or written, or answer nothing
# at all until somebody takes them out, under load. Nothing that was promised may be lost, no wrong byte returned, and after a scrub or a rebuild everything is whole.
. "$(dirname "$(realpath "$0")")/lib.sh"

table() { # device number, and the features of flakey, or nothing for a sound device
    local size device=/dev/vd${DISKS[$1]} name=m$1
    size=$(blockdev --getsz "$device")
    shift
    if [ $# = 0 ]; then
        echo "0 $size linear $device 0"
    else
        echo "0 $size flakey $device 0 0 100000 $# $*"
    fi
}
turn() {
    dmsetup suspend --noudevsync --nolockfs "m$1" && table "$@" | dmsetup load "m$1" && dmsetup resume --noudevsync "m$1" || give_up "dmsetup: member $1 cannot be turned to: ${*:2}"
}
members() { "$WINDROW" pool status tank | grep -cE "$1"; }
# 0: nothing was wrong; 1: all that was wrong is repaired.
scrub() {
    local said
    said=$("$WINDROW" pool scrub tank --wait 2>&1)
    local status=$?
    if [ $status -le 1 ]; then pass "$said"; else fail "scrub: status $status: $said"; fi
}
loaded() { load --seconds "$1" --seed "$2" || return 1; }

inside() {
    pool_in /dev/shm/pool
    NOTES=/dev/shm/notes
    DISKS=(a b c d e)
    for member in 0 1 2 3 4; do table $member | dmsetup create --noudevsync m$member || give_up "dmsetup"; done
    dmsetup mknodes
    must "create" "$WINDROW" pool create --redundancy 6 --segment 256K --chunk 64K tank /dev/mapper/m[01234]
    must "volume" "$WINDROW" volume create tank/data 16M
    serve || give_up "start"
    must "load on sound members" loaded 5 1

    turn 3 drop_writes
    must "load while member 3 drops its writes" loaded 8 2
    must "judged while it does" judge
    turn 3
    scrub
    must "everything is whole" wait_until_whole

    turn 3 corrupt_bio_byte 32 r 1 0
    turn 4 corrupt_bio_byte 700 r 255 0
    must "load while two members corrupt what is read" loaded 6 3
    must "judged while they do" judge
    turn 3
    turn 4
    scrub

    turn 4 corrupt_bio_byte 100 w 77 0
    must "load while member 4 corrupts what is written" loaded 6 4
    turn 4
    must "judged" judge
    scrub

    turn 3 drop_writes
    must "load while member 3 drops its writes" loaded 5 5
    kill_server
    turn 3
    serve || give_up "start after the kill of a pool with a member that dropped writes and flushes"
    must "judged" judge
    must "everything is whole" wait_until_whole
    scrub

    turn 3 error_writes
    must "load while member 3 fails its writes" loaded 6 6
    turn 4 error_writes
    must "load while member 4 does too" loaded 6 7
    must "judged while they do" judge
    [ "$(members faulted)" -ge 2 ] && pass "both are faulted" || fail "not faulted: $("$WINDROW" pool status tank)"
    turn 3
    turn 4
    kill_server
    serve || give_up "start with members that failed"
    must "judged" judge
    must "rebuilt" wait_until_whole
    scrub

    turn 3 error_reads
    must "load while member 3 fails its reads" loaded 6 8
    must "judged while it does" judge
    turn 3
    scrub

    turn 3 error_reads error_writes
    must "load while member 3 is gone" loaded 6 9
    must "judged while it is" judge
    [ "$(members faulted)" = 1 ] && pass "it is faulted, and the pool goes on" || fail "not faulted: $("$WINDROW" pool status tank)"
    turn 3
    must "it is back" "$WINDROW" pool online tank 3
    must "load while it gets what it has missed" loaded 4 10
    must "it is whole" wait_until_whole
    must "judged" judge
    must "it has all that it missed" "$WINDROW" pool scrub tank --wait

    # The kernel queues what goes to it, and fails nothing.
    loaded 30 11 > "$RUN/load" 2>&1 &
    local loading=$!
    sleep 6
    dmsetup suspend --noudevsync --nolockfs m3 || give_up "dmsetup: member 3 cannot be suspended"
    sleep 6
    must "it hangs, and is taken out at once" timeout 20 "$WINDROW" pool offline tank 3
    if wait $loading; then pass "the load goes on without it"; else fail "the load: $(cat "$RUN/load")"; fi
    must "judged without it" judge
    "$WINDROW" pool status tank | grep -q "unanswered commands" && pass "its commands are with it" || fail "nothing is with it: $("$WINDROW" pool status tank)"
    # Who asks for it too early waits in the daemon for the device, if not for too long; nobody else does.
    "$WINDROW" pool online tank 3 > "$RUN/online" 2>&1 &
    local coming=$!
    sleep 2
    must "load beside an administrator who waits for it" timeout 60 "$PROMISES" load --socket "$SOCKET" --notes "$NOTES" --seconds 8 --seed 12
    must "judged beside one" judge
    dmsetup resume --noudevsync m3
    if wait $coming || "$WINDROW" pool online tank 3 >> "$RUN/online" 2>&1; then pass "it answers again, and is back"; else fail "it does not come back: $(cat "$RUN/online")"; fi
    must "it is whole" wait_until_whole
    must "judged" judge
    must "it has all that it missed" "$WINDROW" pool scrub tank --wait

    # It hangs again, and is still hanging when the pool ends and is started again.
    loaded 40 13 > "$RUN/load" 2>&1 &
    loading=$!
    sleep 4
    dmsetup suspend --noudevsync --nolockfs m3 || give_up "dmsetup: member 3 cannot be suspended"
    sleep 18
    [ "$(members 'online .*\(no answer for [0-9]+ s\)')" = 1 ] && pass "it is shown which one hangs" || fail "it is not shown: $("$WINDROW" pool status tank)"
    must "it is taken out" timeout 20 "$WINDROW" pool offline tank 3
    if wait $loading; then pass "the load goes on without it"; else fail "the load: $(cat "$RUN/load")"; fi
    local before=$SERVER
    kill "$before"
    serve || give_up "start beside a process that ends and waits for a device that hangs"
    kill -0 "$before" 2>/dev/null && pass "the process before waits for the device, and the pool is served again" || fail "nothing was with the device"
    must "judged" judge
    must "load without it" loaded 5 14
    dmsetup resume --noudevsync m3
    if wait "$before"; then pass "the process before has ended"; else fail "the end is not clean"; fi
    must "it is back" "$WINDROW" pool online tank 3
    must "it is whole" wait_until_whole
    must "judged" judge
    must "it has all that it missed" "$WINDROW" pool scrub tank --wait
    end_sound
}

if [ -n "${GUEST:-}" ]; then
    inside
else
    guest --disks 5 --disk-size 64M --disk-dir "$WORK" --modules "dm-mod dm-flakey"
    exit $?
fi
exit $FAILED
