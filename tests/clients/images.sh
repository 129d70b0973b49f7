#!/bin/bash
# images.sh URI: copies images to and from a writable export of 64 MiB with nbdcopy, qemu-img and qemu-io, and compares.
# All of the export is overwritten. Exit status: 0 good, 77 a program is missing.
set -euo pipefail
uri=$1
for program in nbdinfo nbdcopy qemu-img qemu-io python3; do
    command -v $program >/dev/null || { echo "skipped: $program is missing"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

size=$(nbdinfo --size "$uri")
[ "$size" = $((64 << 20)) ]
nbdinfo --json "$uri" > info.json
python3 - <<'PYTHON'
import json
export = json.load(open("info.json"))["exports"][0]
assert export["export-size"] == 64 << 20 and export["contexts"] == ["base:allocation"], export
assert (export["block_size_minimum"], export["block_size_preferred"], export["block_size_maximum"]) == (1, 4096, 32 << 20), export
assert all(export["can_" + name] for name in ["flush", "fua", "trim", "zero", "fast_zero", "df", "cache", "multi_conn"]), export
PYTHON

# Data, a hole and data again.
truncate -s 64M source.img
dd if=/dev/urandom of=source.img bs=1M count=10 conv=notrunc status=none
dd if=/dev/urandom of=source.img bs=64k count=5 seek=800 conv=notrunc status=none
nbdcopy --flush source.img "$uri"
nbdcopy "$uri" copy.img
cmp source.img copy.img
nbdcopy --connections=4 --requests=32 "$uri" copy.img
cmp source.img copy.img
nbdinfo --map "$uri" > map
grep -q data map
grep -q 'hole,zero' map

qemu-img info "$uri" | grep -q '64 MiB'
qemu-img compare -f raw -F raw source.img "$uri"
qemu-img convert -f raw -O qcow2 "$uri" copy.qcow2
qemu-img compare -f qcow2 -F raw copy.qcow2 source.img
dd if=/dev/urandom of=source.img bs=1M count=3 seek=20 conv=notrunc status=none
qemu-img convert -n -f raw -O raw source.img "$uri"
qemu-img compare -f raw -F raw source.img "$uri"

qemu-io -f raw "$uri" -c 'write -P 17 1M 5M' -c 'write -f -P 18 2M 4k' -c 'write -z 3M 1M' -c 'write -z -u 4M 64k' -c 'discard 5M 64k' -c flush \
    -c 'read -P 17 1M 1M' -c 'read -P 18 2M 4k' -c 'read -P 0 3M 1M' -c 'read -P 0 4M 64k' -c 'read -P 0 5M 64k' > out
! grep -Ei 'fail|error' out
