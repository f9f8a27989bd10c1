#!/bin/sh
# Boots the machine's own systemd in namespaces, over a copy of the root that is thrown away: boot.sh PROJECT OUT.
# It runs inside.sh once, whose output lies in OUT/said, and powers off.
set -e
if [ "$1" != inside ]; then
  group=/sys/fs/cgroup; test -d "$group/unified" && group="$group/unified"
  mkdir -p "$group/hermes-test-$$"
  echo $$ > "$group/hermes-test-$$/cgroup.procs"
  exec unshare --pid --fork --mount --uts --ipc --cgroup sh "$0" inside "$1" "$2"
fi
project=$2 out=$3
mount --make-rprivate /
box=$(mktemp -d); mount -t tmpfs tmpfs "$box"; mkdir "$box/upper" "$box/work" "$box/root"; root=$box/root
mount -t overlay overlay -o "lowerdir=/,upperdir=$box/upper,workdir=$box/work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
umount -l "$root/sys/fs/cgroup"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t devtmpfs devtmpfs "$root/dev"
mount -t tmpfs tmpfs "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mkdir -p "$root/opt/project" "$root/opt/out" "$root/old"
mount --bind "$project" "$root/opt/project"
mount --bind "$out" "$root/opt/out"
: > "$out/console"; mount --bind "$out/console" "$root/dev/console"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
for unit in systemd-tmpfiles-setup.service systemd-tmpfiles-clean.timer systemd-udevd.service systemd-sysctl.service \
  systemd-modules-load.service systemd-logind.service getty.target; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
: > "$root/etc/fstab"
cat > "$root/etc/systemd/system/probe.service" <<UNIT
[Service]
Type=oneshot
ExecStart=/bin/sh /opt/project/tests/e2e/systemd/inside.sh
StandardOutput=append:/opt/out/said
StandardError=inherit
ExecStopPost=/bin/systemctl --force --force poweroff
UNIT
cd "$root"; pivot_root . old; cd /; umount -l /old; mount --make-rshared /
exec env -i container=docker PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=probe.service
