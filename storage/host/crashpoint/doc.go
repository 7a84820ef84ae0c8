// Package crashpoint marks every effect of the program: a program run, a configfs or
// sysfs write, a durable rename, a mount, an API write. In the shipped binary its
// functions are empty. Built with the tag "crashpoints" they count the effects and can
// kill the process just before or just after the one a test names, so that a test walks
// through every crash an operation can have:
//
//	PILLAR_CRASH_LOG=FILE   append one line "<n> <kind> <what>" per effect
//	PILLAR_CRASH_AT=before:N or after:N   SIGKILL this process at effect N
//
// Effects are numbered from 1, over all kinds, in the order they happen.
package crashpoint

// The kinds of effect.
const (
	Program  = "program"  // a program run by host.Runner
	Kernel   = "kernel"   // a write, mkdir, link or unlink below configfs or sysfs, a device ioctl
	Durable  = "durable"  // a rename or removal of a durable file
	Mount    = "mount"    // mount(2), umount2(2)
	APIWrite = "apiwrite" // a create, update, patch or delete at the Kubernetes API
)
