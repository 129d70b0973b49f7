#!/usr/bin/env bash
# The udev rule on a Debian with systemd: members on partitions, bare disks and loop devices are known to udev and
# lsblk, have a link, keep both after a reboot, and are forgotten when the labels are erased. What is no member is
# left alone.
. "$(dirname "$(realpath "$0")")/lib.sh"

property() { udevadm info --query=property --name="$1" | sed -n "s/^$2=//p"; }
# A device, and the file-system type that udev and lsblk must say.
is_known_as() {
    udevadm settle
    local said
    said=$(property "$1" ID_FS_TYPE)/$(lsblk -dno FSTYPE "$1")
    if [ "$said" = "$2/$2" ]; then pass "$1 is ${2:-nothing}"; else fail "$1 is $said, not $2"; fi
}
has_link() {
    local link
    link=/dev/disk/by-windrow/$(property "$1" ID_FS_UUID_SUB_ENC)
    if [ "$(realpath "$link")" = "$1" ]; then pass "$1 has a link"; else fail "no link to $1: $link, $(ls /dev/disk/by-windrow)"; fi
}

first_boot() {
    install -m 755 "$WINDROW" /usr/bin/windrow
    install -m 644 /rules/65-windrow.rules /usr/lib/udev/rules.d/
    udevadm control --reload
    mkfs.ext4 -q /dev/vdf
    truncate -s 64M /var/tmp/member
    losetup /dev/loop0 /var/tmp/member
    must "create" windrow pool create --redundancy 5 --segment 256K --chunk 64K tank /dev/vd[bcd]
    must "create on a bare disk and a loop device" windrow pool create --redundancy 1 --whole-disk --segment 256K --chunk 64K bare /dev/vde /dev/loop0
    for member in /dev/vdb1 /dev/vdc1 /dev/vdd1 /dev/vde /dev/loop0; do
        is_known_as $member windrow_member
        has_link $member
    done
    is_known_as /dev/vdb ""
    is_known_as /dev/vdf ext4
    [ "$(property /dev/vdb1 ID_FS_LABEL)" = tank ] && pass "the pool is named" || fail "label: $(udevadm info --query=property --name=/dev/vdb1)"
}

second_boot() {
    for member in /dev/vdb1 /dev/vdc1 /dev/vdd1 /dev/vde; do
        is_known_as $member windrow_member
        has_link $member
    done
    is_known_as /dev/vdf ext4
    must "destroy and wipe" windrow pool destroy tank --wipe --yes
    for member in /dev/vdb1 /dev/vdc1 /dev/vdd1; do
        udevadm settle
        [ -z "$(property $member ID_FS_TYPE)" ] && pass "$member is forgotten" || fail "$member is still $(property $member ID_FS_TYPE)"
    done
    is_known_as /dev/vde windrow_member
}

if [ -n "${1:-}" ]; then
    if [ "$1" = 1 ]; then first_boot; else second_boot; fi
else
    echo 'WINDROW=/under-test/windrow exec bash /cases/udev.sh "$1"' > "$WORK/script"
    "$GUEST_DIR/run-systemd.sh" --boots 2 --disks 5 --disk-size 64M --console "$WORK/console" --share "$(dirname "$WINDROW")=/under-test" \
        --share "$HERE=/cases" --share "$(realpath "$HERE/../../packaging/udev")=/rules" "$WORK/script"
    exit $?
fi
exit $FAILED
