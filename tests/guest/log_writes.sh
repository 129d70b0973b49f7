#!/usr/bin/env bash
# Members on dm-log-writes. A load in the guest stops at flushes and sets a mark in the log of every member; later each mark is a crash: every member
# gets what was durable on it at the mark, and of what was written up to its next flush a part (see examples/promises). The pool must start, hold what was
# promised before the mark, and be sound. CRASHES crashes are made of each mark.
. "$(dirname "$(realpath "$0")")/lib.sh"
CRASHES=${CRASHES:-3}

# Sets mark $1 on all members, again until nothing was written meanwhile: the marks have to be of one moment.
hook() {
    counters() { for dm in 0 1 2 3; do awk '{print $5, $9, $12, $16}' /sys/block/dm-$dm/stat; done; }
    for attempt in $(seq 20); do
        local before after
        before=$(counters)
        for member in 0 1 2 3; do dmsetup message m$member 0 mark "$1-$attempt" || exit 1; done
        after=$(counters)
        if [ "$before" = "$after" ] && ! awk '$2 != 0 {found = 1} END {exit !found}' <<< "$after"; then
            echo "$1 $1-$attempt" >> /out/marks
            exit 0
        fi
    done
    # The mark is of no use, but nothing is wrong.
    exit 0
}

inside() {
    pool_in /dev/shm/pool
    NOTES=/out/notes
    local members=(a b c d) logs=(e f g h)
    for member in 0 1 2 3; do
        local device=/dev/vd${members[$member]}
        echo "0 $(blockdev --getsz $device) log-writes $device /dev/vd${logs[$member]}" | dmsetup create --noudevsync m$member || give_up "dmsetup"
    done
    dmsetup mknodes
    # The first sector of the log counts from here: the pool itself is created on the log, too.
    must "create" "$WINDROW" pool create --redundancy 5 --segment 256K --chunk 64K tank /dev/mapper/m[0123]
    must "volume" "$WINDROW" volume create tank/data 8M
    serve || give_up "start"
    must "load" load --seconds 1500 --marks 12 --hook "$HERE/log_writes_hook.sh"
    must "judged" judge
    stop_server
    must "check" check
    for member in 0 1 2 3; do dmsetup remove --noudevsync m$member || fail "dmsetup remove"; done
}

# One crash: the mark as the notes name it, as the logs name it, a seed, and the mark whose promises must hold.
crash() {
    local member
    rm -rf "$WORK/crash"
    pool_in "$WORK/crash"
    for member in 0 1 2 3; do
        truncate -s 64M "$RUN/m$member"
        "$PROMISES" replay --log "$WORK/log-$member" --onto "$RUN/m$member" --mark "$2" --seed $((100 * $3 + member)) || return 1
    done
    serve --members "$RUN/m0,$RUN/m1,$RUN/m2,$RUN/m3" || return 1
    judge --mark "$4" || { kill_server; return 1; }
    stop_server || return 1
    check --members "$RUN/m0,$RUN/m1,$RUN/m2,$RUN/m3"
}

outside() {
    mkdir -p "$WORK/out"
    local disks=() number said count=0 last
    for member in 0 1 2 3; do truncate -s 64M "$WORK/member-$member"; disks+=(--disk "$WORK/member-$member"); done
    for member in 0 1 2 3; do truncate -s 4G "$WORK/log-$member"; disks+=(--disk "$WORK/log-$member"); done
    # With JUDGE_ONLY the logs of an earlier run are judged again.
    [ -n "${JUDGE_ONLY:-}" ] || GUEST_TIMEOUT=2400 guest "${disks[@]}" --modules "dm-mod dm-log-writes" || give_up "in the guest"
    NOTES=$WORK/out/notes
    while read -r number mark; do
        for ((seed = 0; seed < CRASHES; seed++)); do
            if said=$(crash "$number" "$mark" $((number * CRASHES + seed)) "$number" 2>&1); then count=$((count + 1)); else fail "crash at mark $mark, seed $((number * CRASHES + seed)): $said"; fi
        done
        last=$number
    done < "$WORK/out/marks"
    [ $count -ge 20 ] && pass "$count crashes of $(wc -l < "$WORK/out/marks") marks" || fail "only $count crashes"
    # What was promised after a crash is not there: the judge has to find that.
    read -r number mark < "$WORK/out/marks"
    said=$(crash "$number" "$mark" 0 "$last" 2>&1)
    if [[ $said = *"lost: "* ]]; then pass "the judge finds promises of a later mark broken"; else fail "the judge overlooks broken promises: $said"; fi
}

if [ "${1:-}" = hook ]; then hook "$2"; elif [ -n "${GUEST:-}" ]; then inside; else outside; fi
exit $FAILED
