// Package lab boots storage and worker machines with real kernels, without root on the
// machine being changed and without hardware virtualisation: user-mode Linux by default,
// QEMU with a stock Debian kernel as the second kind.
//
// A lab lives in the namespaces that `lab enter` made (mount, pid, net, ipc), so nothing of
// it outlives that command:
//
//	lab enter                      pid 1 of the lab, reaps, dies with its parent
//	├── your command               calls Open and Boot
//	│   ├── guest storage-1        one process group per guest
//	│   └── guest worker-1
//	└── br0 10.66.0.1/24, 10.96.0.1    one tap per guest is a port of it
//
// What a guest sees:
//
//	/          overlay: tmpfs over the shared, read-only guest root of the cache
//	/etc       overlay: the guest's /var disk over the root's /etc, survives reboots
//	/var       ext4 on the first disk (/dev/ubda, /dev/vda), survives reboots
//	/usr/lib/modules   the kernel's module tree, read-only
//	/host      Lab.HostDir, read-only: put a file there, every guest sees it at once
//	/cache     the artifact cache, read-only
//	spare disks /dev/ubdb, /dev/ubdc ... (QEMU: /dev/vdb ...); see Guest.Disks
//
// PID 1 of a guest is guestinit; its HTTP agent on port 2222 (package agent) runs what
// Guest.Exec asks for. udevd runs, mounts are shared (mount --make-rshared /), cgroup v2 is
// mounted with all controllers handed down, forwarding is on, /proc/cpuinfo names a clock
// speed: all that a kubelet needs.
//
// All artifacts are made by package artifacts and cached outside the repository.
package lab
