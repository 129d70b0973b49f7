#!/bin/bash
# load.sh URI [SIZE]: random writes and reads of mixed sizes by fio, every block verified. Exit status: 0 good, 77 fio is missing.
set -euo pipefail
command -v fio >/dev/null && fio --enghelp | grep -qw nbd || { echo "skipped: fio or its nbd engine is missing"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
common=(--ioengine=nbd "--uri=$1" "--size=${2:-32m}" --verify=crc32c --verify_fatal=1 --randrepeat=1 --output=out)
run() {
    fio "${common[@]}" "$@" || { cat out; exit 1; }
}
run --name=small --rw=randwrite --bs=4k --iodepth=32 --thread=1
run --name=mixed --rw=randrw --bssplit=512/10:4k/50:64k/20:256k/20 --blockalign=512 --iodepth=16 --fsync=64 --thread=1
run --name=large --rw=write --bs=1m --iodepth=4 --thread=1
run --name=trims --rw=trimwrite --bs=64k --iodepth=4 --thread=1
