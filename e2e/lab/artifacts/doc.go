// Package artifacts makes what a lab boots and keeps it in a cache outside the repository:
//
//	$PILLAR_LAB_CACHE (default ~/.cache/pillar-lab)
//	├── apt/                 a private apt: sources, indexes; the machine's own apt is only read
//	├── debs/                downloaded packages; old versions leave the mirrors, so they stay
//	├── uml-<key>/           linux.uml and modules/<release>, NVMe modules built from source
//	├── qemu-<key>/          vmlinux, modules/<release>, initrd parts
//	├── root-<key>/          the guests' root directory, shared and read-only
//	├── guestinit-<key>/     PID 1 of the guests, built from this repository
//	├── zfs-<key>/           modules with ZFS, root with its programs; only `lab build zfs` makes it
//	├── logs/                output of the last build of each
//	├── run/                 labs that run now
//	└── failed/              consoles of the last failed runs
//
// An artifact's key is a hash of everything that went into it. It is built in a temporary
// directory under a lock and renamed, so a killed build leaves nothing half done and two builds
// of the same thing become one. Its modification time is its last use; the builds remove what
// was not used for a week and is not the last of its kind.
package artifacts
