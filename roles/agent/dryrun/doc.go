// Package dryrun is what `pillar agent --dry-run` stands on: ways to look at a host without
// changing it, and a host to change without there being one.
//
//	Reader     a host.Runner that runs the tools which only read, and refuses the others
//	Report     what serving would do on this host, and what it lacks: text or JSON
//	Machine    a storage node in memory, for --serve
//	├── LVM and ZFS     the answers of lvm(8), zfs(8) and zpool(8), as a host.Runner
//	├── devices         that can be opened, held and written
//	└── configfs        with the kernel's rules for nvmet (package memory)
//
// The agent above a Machine is the real one: backends, target, fencing and gate do not know
// that no kernel answers. The same conformance suites hold both.
//
//	<state directory>/
//	├── simulation.json    the Machine's pools; marks the directory as simulated
//	└── machine/           while it runs: the files below /sys and /dev that the backends read
package dryrun
