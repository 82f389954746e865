#!/bin/sh
# Prints the files of this machine's kernel that mmscale reads. It changes nothing. Only root may
# read /proc/zoneinfo's neighbours (pagetypeinfo); what cannot be read is left out.
#   sh snapshot.sh > machine.snap
# Twice, some seconds apart, for rates:
#   sh snapshot.sh > a.snap; sleep 10; sh snapshot.sh > b.snap
export LC_ALL=C
show() {
    for file; do
        [ -r "$file" ] && echo "==> $file <==" && cat "$file" && echo
    done 2>/dev/null
}
run() {
    command -v "$1" >/dev/null && echo "==> $* <==" && "$@" && echo
}
show /proc/uptime /proc/vmstat
run uname -srm
show /proc/zoneinfo /proc/buddyinfo /proc/pagetypeinfo /proc/meminfo
show /proc/sys/vm/*
show /sys/kernel/mm/transparent_hugepage/enabled /sys/kernel/mm/lru_gen/enabled
show /sys/fs/cgroup/memory.stat /sys/fs/cgroup/memory/memory.stat
show /sys/devices/system/node/node*/cpulist /sys/devices/system/node/node*/meminfo
show /sys/devices/system/cpu/cpu*/cpu_capacity
show /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq
run lscpu
run lscpu -e
run numactl -H
echo "==> config <=="
(zcat /proc/config.gz || cat "/boot/config-$(uname -r)") 2>/dev/null |
    grep -E '^CONFIG_(HZ|NR_CPUS|NUMA|PREEMPT|PCP|MEMCG|LRU|TRANSPARENT|LOCK|DEBUG|SLUB|PER_VMA)'
exit 0
