// Package namespace runs a command where a lab can live without touching the machine: in mount,
// pid, net and ipc namespaces of its own.
//
//	Enter (the process the user started)
//	└── Init, pid 1 of the lab          dies with Enter, takes everything with it
//	    └── the command
//
// The network has lo and the bridge br0 with 10.66.0.1/24 and 10.96.0.1, nothing else: no way
// out. Each lab has a directory below the cache's run/, which other processes find it by:
//
//	lock                 held by Enter and Init, so as long as the lab runs
//	pid                  of Init
//	kept                 there is: nothing happens in the lab any more, Stop may end it
//	guests-*/GUEST/      address, console and disks of a guest
package namespace

// Names and addresses of a lab's network.
const (
	Bridge         = "br0"
	BridgeAddress  = "10.66.0.1"
	BridgeNetwork  = "10.66.0.1/24"
	ServiceAddress = "10.96.0.1/32" // the cluster's kubernetes.default, without kube-proxy
)

// Environment variables inside a lab.
const (
	RunVar  = "PILLAR_LAB_RUN"  // the lab's directory; set means: inside a lab
	KeepVar = "PILLAR_LAB_KEEP" // "1": the lab lives on when the command has ended

	// ChoiceVar names one of several running labs to the commands that look at one.
	ChoiceVar = "LAB"
)
