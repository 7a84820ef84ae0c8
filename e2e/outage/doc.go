// Package outage cuts a storage node off under a host that writes, without a cluster around
// them: two guests of the lab, and the test as their controller.
//
//	the test ──gRPC──▶ storage-1: the agent on LVM and nvmet; killed, booted, restored
//	                      ▲ NVMe/TCP
//	                   worker-1: ext4 on the volume, a scribe that writes with fsync
//
// Both programs in the guests are the test binary itself. The kill is that of the guest's
// processes: what it wrote is in its disk, unlike after a power cut, which
// storage/host/powercuttest replays.
package outage
