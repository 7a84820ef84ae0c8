// Package agent is what the lab and the inside of a guest say to each other: the boot
// configuration the guest finds beside its init, and HTTP on port 2222.
//
//	POST /exec        Command as JSON; the answer is the output as it appears, then the
//	                  trailer Lab-Exit with the exit code
//	POST /shell       hijacked: a terminal with bash, both ways
//	PUT  /file/PATH   write a file (Lab-Mode: octal), atomically
//	GET  /file/PATH   read a file; 404 when it is not there
//	POST /sync        sync(2)
package agent

// Port is where a guest's agent listens, on all its addresses.
const Port = 2222

// Ready is the line on the console that says the agent listens.
const Ready = "pillar-lab: ready"

// Failed begins the console line of a guest that could not boot.
const Failed = "pillar-lab: boot failed: "

const (
	exitTrailer = "Lab-Exit"
	modeHeader  = "Lab-Mode"
)

// Boot is config.json beside a guest's init: all that init has to know.
type Boot struct {
	Name      string
	Interface string // vec0, eth0
	Address   string // with prefix length: 10.66.0.11/24
	Gateway   string

	Early   []string // module files loaded before anything else, relative to Modules
	Root    Share    // the shared read-only root
	Modules Share    // holds <release>/
	Var     string   // device of /var, formatted when blank
	Shares  []Share  // more mounts, in order

	Load  []string // modules to modprobe
	Hosts map[string]string
	Env   map[string]string
}

// Share is a host directory seen by a guest.
type Share struct {
	Type     string // hostfs or 9p
	Source   string // hostfs: a host directory; 9p: the tag
	Target   string // path in the guest
	ReadOnly bool
}

// Command is a program to run in a guest as root.
type Command struct {
	Argv   []string // or
	Script string   // for bash
	Dir    string   // working directory, empty means /root
	Env    []string // added to the guest's
}
